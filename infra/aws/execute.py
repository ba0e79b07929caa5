"""Carrying out a plan, step by step; a step that fails tells its cause, what exists now, and how to go on.

Knows how each kind of step is done, not why: that is the plans' affair. Read next: `troubles.py`.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gradmux.infra.aws.docker import Docker
from gradmux.infra.aws.door import POLL_S, Door
from gradmux.infra.aws.errors import ApiError, AwsError, StepFailed
from gradmux.infra.aws.image import ImageSource
from gradmux.infra.aws.observe import observe
from gradmux.infra.aws.plan import Call, CloudBuild, DockerBuild, DockerPush, EmptyBucket, Plan, Step, Wait
from gradmux.infra.aws.troubles import build_failure, existing, hint, stack_failure

OnStep = Callable[[int, Step], None]
"""Number of the step, from 1, as it begins."""


@dataclass(slots=True)
class Executor:
    """Does what plans say."""

    door: Door
    on_step: OnStep
    docker: Docker | None = None
    """for plans that build with it"""
    source: ImageSource | None = None
    """of the image that the plan builds"""
    sleep: Callable[[float], None] = time.sleep
    stack_id: str | None = None
    """of the stack last created; the only name of one that was deleted again"""
    settled: str | None = None
    """the stack that had nothing to update: there is nothing to wait for"""

    def run(self, plan: Plan, stack: str) -> None:
        """All steps. Raises StepFailed; what was done before stays done, and a new plan goes on from there."""
        for number, step in enumerate(plan.steps, 1):
            self.on_step(number, step)
            try:
                self._do(step)
            except AwsError as error:
                raise StepFailed(self._told(plan, number, step, error, stack)) from error

    def _do(self, step: Step) -> None:
        match step:
            case Call():
                self._call(step)
            case Wait():
                self._wait(step)
            case DockerBuild():
                assert self.docker is not None
                assert self.source is not None
                self.docker.build(self.source, step.image)
            case DockerPush():
                assert self.docker is not None
                self.docker.push(step.image, step.registry, self._registry_password())
            case CloudBuild():
                self._build_in_the_cloud(step)
            case EmptyBucket():
                self._empty(step.bucket)

    def _call(self, step: Call) -> None:
        try:
            answer = self.door.call(step.service, step.operation, step.arguments)
        except ApiError as error:
            if not any(text in error.code or text in error.message for text in step.settled):
                raise
            self.settled = step.arguments.get("StackName")
            return
        self.settled = None
        self.stack_id = answer.get("StackId", self.stack_id)

    def _wait(self, step: Wait) -> None:
        if step.service == "cloudformation" and self.settled == step.arguments["StackName"]:
            return
        try:
            self.door.wait(step.service, step.waiter, step.arguments, step.limit_s)
        except AwsError as error:
            if step.service != "cloudformation":
                raise
            name = self.stack_id or step.arguments["StackName"]
            raise AwsError(stack_failure(self.door, name) or str(error)) from error

    def _registry_password(self) -> str:
        (granted,) = self.door.call("ecr", "get_authorization_token", {})["authorizationData"]
        return base64.b64decode(granted["authorizationToken"]).decode().partition(":")[2]

    def _build_in_the_cloud(self, step: CloudBuild) -> None:
        build = self.door.call("codebuild", "start_build", step.arguments)["build"]
        waited_s = 0.0
        while build["buildStatus"] == "IN_PROGRESS":
            if waited_s >= step.limit_s:
                raise AwsError(f"build {build['id']} has not ended after {step.limit_s:g} s")
            self.sleep(POLL_S)
            waited_s += POLL_S
            (build,) = self.door.call("codebuild", "batch_get_builds", {"ids": [build["id"]]})["builds"]
        if build["buildStatus"] != "SUCCEEDED":
            raise AwsError(build_failure(build))

    def _empty(self, bucket: str) -> None:
        while uploads := self._uploads(bucket):
            for key, upload in uploads:
                self.door.call("s3", "abort_multipart_upload", {"Bucket": bucket, "Key": key, "UploadId": upload})
        while objects := self._versions(bucket):
            arguments = {"Bucket": bucket, "Delete": {"Objects": objects, "Quiet": True}}
            refused = self.door.call("s3", "delete_objects", arguments).get("Errors")
            if refused:
                raise AwsError(f"s3://{bucket}/{refused[0]['Key']}: {refused[0]['Code']}: {refused[0]['Message']}")

    def _versions(self, bucket: str) -> list[dict[str, str]]:
        """The next thousand of the objects' versions and delete markers."""
        page = self.door.call("s3", "list_object_versions", {"Bucket": bucket, "MaxKeys": 1000})
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        return [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found]

    def _uploads(self, bucket: str) -> list[tuple[str, str]]:
        """The next thousand of the unfinished uploads: key and id."""
        page: Mapping[str, Any] = self.door.call("s3", "list_multipart_uploads", {"Bucket": bucket})
        return [(each["Key"], each["UploadId"]) for each in page.get("Uploads", [])]

    def _told(self, plan: Plan, number: int, step: Step, error: AwsError, stack: str) -> str:
        lines = [f"step {number} of {len(plan.steps)} failed ({step.title}): {error}"]
        if advice := hint(str(error)):
            lines.append(advice)
        try:
            lines.append(f"exists now: {existing(observe(self.door, stack))}")
        except AwsError as trouble:
            lines.append(f"what exists now cannot be read: {trouble}")
        lines.append("repeat the command to go on: what is done is not done again; `gradmux destroy` removes it all")
        return "\n".join(lines)
