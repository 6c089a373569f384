"""Captures: pcap and pcapng files, the process that records one while a job runs, and their explanation by `hosts.decode`."""
