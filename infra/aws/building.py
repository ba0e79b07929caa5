"""The steps that build the worker's image, by docker or in the cloud, when it has not been built yet.

Pure. Used by `stack_plan.py` and `direct_plan.py`.
"""

from __future__ import annotations

from gradmux.infra.aws.errors import SettingsError
from gradmux.infra.aws.image import ImageSource
from gradmux.infra.aws.names import Names
from gradmux.infra.aws.plan import Call, CloudBuild, DockerBuild, DockerPush, Step
from gradmux.infra.aws.settings import Architecture, Builder, DeploySettings

CLOUD_MACHINES = {
    Architecture.X86: ("LINUX_CONTAINER", "aws/codebuild/amazonlinux-x86_64-standard:5.0"),
    Architecture.ARM: ("ARM_CONTAINER", "aws/codebuild/amazonlinux-aarch64-standard:3.0"),
}
"""CodeBuild's environment type and image; each builds natively, without emulation."""


def building(
    settings: DeploySettings, names: Names, source: ImageSource, bucket: str, docker: Architecture | None
) -> list[Step]:
    """The steps to an image with the source's tag. `docker` is the architecture of this machine's engine, if any.

    Raises: SettingsError when docker is asked for and there is none.
    """
    if _by_docker(settings, docker):
        return by_docker(names, source)
    return _in_the_cloud(names, source, bucket)


def by_docker(names: Names, source: ImageSource) -> list[Step]:
    """Built here, then pushed."""
    image = names.image(source.tag)
    return [
        DockerBuild(image, source.base, source.architecture.platform, "the worker's image, built by docker"),
        DockerPush(image, names.registry, "Lambda takes images from the account's own registry"),
    ]


def _by_docker(settings: DeploySettings, docker: Architecture | None) -> bool:
    if settings.builder is Builder.DOCKER and docker is None:
        raise SettingsError("no docker engine answers here: start docker, or use --builder cloud")
    if settings.builder is Builder.AUTO:
        return docker is settings.architecture
    return settings.builder is Builder.DOCKER


def _in_the_cloud(names: Names, source: ImageSource, bucket: str) -> list[Step]:
    key = f"builds/{source.tag}.zip"
    kind, machine = CLOUD_MACHINES[source.architecture]
    upload = Call(
        "s3",
        "put_object",
        {"Bucket": bucket, "Key": key, "Body": source.zipped()},
        "what the image is built from, where CodeBuild can read it",
    )
    variables = {"IMAGE": names.image(source.tag), "BASE": source.base}
    build = CloudBuild(
        {
            "projectName": names.project,
            "sourceTypeOverride": "S3",
            "sourceLocationOverride": f"{bucket}/{key}",
            "environmentTypeOverride": kind,
            "imageOverride": machine,
            "environmentVariablesOverride": [
                {"name": name, "value": value, "type": "PLAINTEXT"} for name, value in variables.items()
            ],
        },
        "the worker's image, built and pushed by CodeBuild (there is no docker for it here)",
    )
    return [upload, build]
