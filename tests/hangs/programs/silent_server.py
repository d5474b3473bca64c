"""A reward server takes the request and never answers."""

import socket
import urllib.request

from training import train

server = socket.create_server(("127.0.0.1", 0))


def reward():
    urllib.request.urlopen(f"http://127.0.0.1:{server.getsockname()[1]}/score")  # stands


train(reward)
