import json
import socket

import pytest

from pytest_tfperf.turns.workers import cluster_environments


@pytest.mark.parametrize("n", [2, 5])
def test_each_worker_knows_all_addresses_and_its_own_index(n):
    configs = [json.loads(one["TF_CONFIG"]) for one in cluster_environments(n)]
    assert [one["task"] for one in configs] == [
        {"type": "worker", "index": index} for index in range(n)
    ]
    [addresses] = {tuple(one["cluster"]["worker"]) for one in configs}
    assert len(set(addresses)) == n
    for address in addresses:
        host, port = address.split(":")
        assert host == "127.0.0.1"
        with socket.socket() as one:
            one.bind((host, int(port)))  # free again
