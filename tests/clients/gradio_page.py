"""Uses the page of examples/python/novita_gradio.py as a browser does."""

import os

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

from gradio_client import Client
from novita_gradio import page

blocks = page()
_, address, _ = blocks.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
client = Client(address, verbose=False)
answer = client.predict("write and run hello.py", api_name="/chat")
assert "It prints 42." in str(answer) and "exit code 3" in str(answer), answer
output = client.predict("cat hello.py", api_name="/command")
assert "print(6 * 7)" in str(output), output
blocks.close()
print("passed")
