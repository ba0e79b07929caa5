"""The bucket, from both sides: this machine puts, reads and deletes an object; a worker sums one and writes the sum.

The worker is asked by the contract's own `reduce`, so that its role is tried as a job would try it.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator

from gradmux.infra.aws.doctor.handshake import RUN, Called, call, remedy
from gradmux.infra.aws.doctor.needs import Needs
from gradmux.infra.aws.door import Door
from gradmux.infra.aws.errors import ApiError
from gradmux.lambda_worker.contract import Reduction, ReplyMode, Request, Source, decode_result
from gradmux.orchestrator.findings import Finding, failure, warning, well

VALUE, WEIGHT = 2.0, 3.0


def from_here(door: Door, needs: Needs) -> Iterator[Finding]:
    """Exists, lies in our region, and may be written, read and cleaned up."""
    try:
        head = door.call("s3", "head_bucket", {"Bucket": needs.bucket})
    except ApiError as error:
        yield failure("bucket", f"s3://{needs.bucket}: {error.code}: {error.message}", _remedy(error.code))
        return
    key, body = _prefix() + "probe", uuid.uuid4().bytes
    began = time.perf_counter()
    try:
        door.call("s3", "put_object", {"Bucket": needs.bucket, "Key": key, "Body": body})
        same = door.call("s3", "get_object", {"Bucket": needs.bucket, "Key": key})["Body"].read() == body
        door.call("s3", "delete_object", {"Bucket": needs.bucket, "Key": key})
    except ApiError as error:
        yield failure("bucket", f"s3://{needs.bucket}: {error}", _remedy(error.code))
        return
    took_ms = 1e3 * (time.perf_counter() - began)
    region = head.get("BucketRegion") or door.region
    if not same:
        yield failure("bucket", f"s3://{needs.bucket} gives back other bytes than were put", "check the endpoint")
    elif region != door.region:
        do = "use a bucket in the function's region: traffic between regions is slow, and billed"
        yield warning("bucket", f"s3://{needs.bucket} is in {region}, the function in {door.region}", do)
    else:
        yield well("bucket", f"s3://{needs.bucket}: put, read and deleted in {took_ms:.0f} ms")


def from_the_worker(door: Door, needs: Needs) -> Iterator[Finding]:
    """A worker reads and writes it, under its own role."""
    prefix = _prefix()
    source, out = prefix + "term", prefix + "sum"
    door.call("s3", "put_object", {"Bucket": needs.bucket, "Key": source, "Body": struct.pack("<d", VALUE)})
    try:
        yield _summed(door, needs, prefix, source, out)
    finally:
        for key in (source, out):
            door.call("s3", "delete_object", {"Bucket": needs.bucket, "Key": key})


def _summed(door: Door, needs: Needs, prefix: str, source: str, out: str) -> Finding:
    """Asks a worker for the weighted sum of one number."""
    reduction = Reduction(0, (Source(source, WEIGHT, 0),), 0, 1, out, "float64")
    mode = ReplyMode(mode="s3", dtype="float64", prefix=prefix)
    called = call(door, needs, Request("reduce", RUN, 0, 0, 0, needs.bucket, reply=mode, reduce=reduction))
    if not isinstance(called, Called):
        return failure("worker's bucket", called, remedy(called))
    (result,) = called.reply.results
    if result.status != "ok":
        do = "the function's role may not use the bucket: see `gradmux deploy --policies`"
        return failure("worker's bucket", str(result.error).partition("\n")[0], do)
    body = door.call("s3", "get_object", {"Bucket": needs.bucket, "Key": out})["Body"].read()
    if float(decode_result(body)[0][0]) != WEIGHT * VALUE:
        return failure(
            "worker's bucket", "the worker's sum is wrong", "the function uses another bucket or S3 endpoint"
        )
    return well("worker's bucket", "a worker read and wrote it")


def _prefix() -> str:
    """Where workers may write, and lifecycle rules clean up should we not."""
    return f"runs/{RUN}-{uuid.uuid4().hex[:12]}/results/"


def _remedy(code: str) -> str:
    if code in ("404", "NoSuchBucket"):
        return "gradmux deploy makes one; or check cluster.bucket"
    if code in ("403", "AccessDenied", "Forbidden"):
        return "it belongs to somebody else, or these credentials may not use it: see `gradmux deploy --policies`"
    if code.startswith("KMS"):
        return "enable the bucket's KMS key, and name it to worker and clients: gradmux deploy --kms-key ARN"
    if code in ("301", "PermanentRedirect"):
        return "it lies in another region: set AWS_REGION to that, or use another bucket"
    return "see what AWS says"
