"""The jobs that run over a transport, as state machines without I/O or clock: ring all-reduce, all-to-all, streams.

Whatever drives a job hands it completions and the time, and takes from it writes to post, step records and the next deadline.
"""

from hosts.jobs.common import Job, JobError, StepRecord, Write, Wrong
from hosts.jobs.make import make_job

__all__ = ["Job", "JobError", "StepRecord", "Write", "Wrong", "make_job"]
