"""Where workers run: `aws` deploys to an account, `local` emulates Lambda and S3 on this machine."""
