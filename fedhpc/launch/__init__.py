"""From a request for a job to the text of a batch script that a person can read, edit and keep."""

from __future__ import annotations

from fedhpc.launch.request import SCHEDULERS, UNSAFE, JobRequest, Site, parse_time
from fedhpc.launch.script import render

__all__ = ["SCHEDULERS", "UNSAFE", "JobRequest", "Site", "parse_time", "render"]
