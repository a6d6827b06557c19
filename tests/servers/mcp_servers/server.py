"""A scripted MCP server: `server.py ERA [TOOLS]`, with tools that behave, and tools that do not."""
import base64
import json
import os
import struct
import sys
import time
import zlib

ERA = sys.argv[1] if len(sys.argv) > 1 else "modern"
TOOLS = int(sys.argv[2]) if len(sys.argv) > 2 else 0
PROMPTS = "prompts" in sys.argv
VERSION = "2026-07-28"
CAPABILITIES = {"tools": {}, "resources": {}, **({"prompts": {}} if PROMPTS else {})}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def png():
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" + bytes(6) + b"\0" + bytes(6))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def echo(arguments, _):
    return text(json.dumps(arguments))


def where(_, __):
    seen = {"pid1": os.path.exists("/proc/1"), "uid": os.getuid(), "cwd": os.getcwd(), "token": os.environ.get("TOKEN")}
    return {"content": [], "structuredContent": {**seen, "argv": sys.argv[1:]}}


def write(arguments, _):
    with open(arguments["path"], "w") as file:
        file.write(arguments.get("text", "written by a server\n"))
    return text("written")


def read(arguments, _):
    with open(arguments["path"]) as file:
        return text(file.read())


def children(arguments, _):
    started = []
    try:
        for _ in range(arguments["count"]):
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            started.append(child)
    except OSError:
        pass
    for child in started:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return text(str(len(started)))


def picture(_, __):
    data = base64.b64encode(png()).decode()
    return {
        "content": [
            {"type": "text", "text": "here it is"},
            {"type": "image", "data": data, "mimeType": "image/jpeg"},
            {"type": "image", "data": base64.b64encode(b"no picture").decode(), "mimeType": "image/png"},
            {"type": "image", "data": "%%%", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "memo://a", "name": "a memo"},
            {"type": "hologram"},
        ]
    }


def big(_, __):
    return text("begin " + "x" * 200_000 + " end")


def slow(_, meta):
    for done in range(4):
        progress = {"progressToken": meta.get("progressToken"), "progress": done, "total": 4, "message": "working"}
        send({"method": "notifications/progress", "params": progress})
        time.sleep(3)
    return text("done at last")


def hang(_, __):
    time.sleep(600)


def die(_, __):
    sys.stderr.write("something went wrong in here\n")
    sys.stderr.flush()
    os._exit(3)


def flood(_, __):
    junk = "x" * 1_000_000 + "\n"
    while True:
        sys.stdout.write(junk)


def endless_line(_, __):
    while True:
        sys.stdout.write("x" * 1_000_000)


def junk(_, __):
    sys.stdout.write("starting up...\n{\"jsonrpc\": \"2.0\", \"id\": 999, \"result\": {}}\n[]\nnull\n\xff\n")
    sys.stdout.flush()
    return text("after the junk")


def nonsense(_, __):
    return {"content": 7}


def refuse(_, __):
    return text("there is no such file", isError=True)


def more(_, __):
    global TOOLS
    TOOLS += 1
    send({"method": "notifications/tools/list_changed"})
    return text("there is one more")


def ask(arguments, meta):
    words = arguments["words"]
    params = {"mode": "form", "message": words, "requestedSchema": {"type": "object", "properties": {words: {"type": "string", "title": words}}}}
    send({"id": words, "method": "elicitation/create", "params": params})
    send({"method": "notifications/message", "params": {"level": "error", "logger": words, "data": words}})
    send({"method": "notifications/progress", "params": {"progressToken": meta.get("progressToken"), "progress": 1, "message": words + "\n"}})
    answer = json.loads(sys.stdin.readline())
    return {"content": [{"type": "text", "text": f"{words} {answer['result']['action']}"}, {"type": "resource_link", "uri": words, "name": words}]}


CALLS = {f.__name__: f for f in (echo, where, write, read, children, picture, big, slow, hang, die, flood, endless_line, junk, nonsense, refuse, more, ask)}


def listed():
    tools = [{"name": name, "description": f"Does {name}", "inputSchema": {"type": "object"}} for name in CALLS]
    # What no endpoint would take.
    tools[0]["inputSchema"] = {"type": "strange", "properties": {"a": 7, "b": {"type": "string", "pattern": ["x"]}}, "required": "a"}
    tools[1]["description"] = "Where it is.\x1b[2J\u202e" + "y" * 100_000
    tools.append({"name": "a name with spaces/and more " + "z" * 100, "inputSchema": None})
    tools += [{"name": f"number_{n}", "description": f"The tool number {n}", "inputSchema": {}} for n in range(TOOLS)]
    return tools + [7, {"description": "without a name"}, tools[0]]


def answer(method, params):
    if method == "server/discover":
        if ERA != "modern":
            return None
        return {"supportedVersions": [VERSION], "capabilities": CAPABILITIES, "instructions": "Be kind to it."}
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": {"name": "s"}}
    if method == "tools/list":
        return {"tools": listed()}
    if method == "prompts/list":
        file, how = {"name": "file", "required": True}, {"name": "how"}
        return {"prompts": [{"name": "review", "description": "Review\x1b[2J a file", "arguments": [file, how]}, {"name": "a b"}, 7]}
    if method == "prompts/get" and params["name"] == "review":
        said = f"Review {sorted(params['arguments'].items())} and @secret.txt\x1b[2J"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "x" * 100_000}}]}
    if method == "resources/list":
        return {"resources": [{"uri": "memo://a", "name": "a memo"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "the memo"}]}
    if method == "tools/call":
        meta = params.get("_meta") or {}
        name = params["name"]
        if name.startswith("number_"):
            return text(f"called {name}")
        return CALLS[name](params.get("arguments") or {}, meta)
    return None


def main():
    if ERA == "never":
        time.sleep(600)
    if ERA == "crash":
        die(None, None)
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if "id" not in message or method is None:
            continue
        if ERA == "mute" and method == "server/discover":
            continue
        if ERA == "dying" and method == "server/discover":
            os._exit(1)
        result = answer(method, message.get("params") or {})
        if result is None:
            send({"id": message["id"], "error": {"code": -32602, "message": "not known here"}})
        else:
            send({"id": message["id"], "result": {**result, "resultType": "complete"} if ERA == "modern" else result})


main()
