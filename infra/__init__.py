"""Where workers run: `infra.aws` deploys to an account, `infra.local` emulates Lambda and S3 on this machine."""
