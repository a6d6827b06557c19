"""Has a vendor's own client talk to the tests' endpoint: a stream with thinking and a call, its result, a whole answer, errors."""

import sys

TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


def refused(call, error, status):
    try:
        call()
    except error as raised:
        assert raised.status_code == status, raised
        return raised
    raise AssertionError(f"no {error.__name__}")


def openai_responses(base_url):
    import openai

    client = openai.OpenAI(base_url=base_url, api_key="k", max_retries=0)
    tools = [{"type": "function", "name": "run_commands", "parameters": TOOL, "strict": False}]
    common = {"model": "m", "store": False, "include": ["reasoning.encrypted_content"], "tools": tools}
    items = [{"role": "user", "content": "look"}]
    with client.responses.stream(input=items, **common) as stream:
        kinds = [event.type for event in stream]
        response = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    reasoning, call = response.output
    assert reasoning.encrypted_content.startswith("sealed-") and reasoning.summary[0].text == "I look first."
    assert call.name == "run_commands" and call.arguments == '{"command":"echo hi"}', call
    assert response.usage.input_tokens > 0
    items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in response.output]
    refused(lambda: client.responses.create(input=items, **common), openai.BadRequestError, 400)
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "hi"})
    changed = [dict(item, encrypted_content="other") if item.get("type") == "reasoning" else item for item in items]
    error = refused(lambda: client.responses.create(input=changed, **common), openai.BadRequestError, 400)
    assert error.code == "invalid_encrypted_content", error
    texts = [
        event.delta
        for event in client.responses.create(input=items, stream=True, **common)
        if event.type == "response.output_text.delta"
    ]
    assert "".join(texts) == "There it is.", texts
    assert client.responses.create(input=items, **common).output_text == "In one piece."
    refused(lambda: client.responses.create(input=items, **common), openai.RateLimitError, 429)
    refused(lambda: client.responses.create(input=items, **common), openai.BadRequestError, 400)
    error = refused(
        lambda: client.responses.create(input=items, extra_body={"nonsense": 1}, **common), openai.BadRequestError, 400
    )
    assert error.code == "unknown_parameter", error


def anthropic_messages(base_url):
    import anthropic

    client = anthropic.Anthropic(base_url=base_url, api_key="k", max_retries=0)
    tools = [{"name": "run_commands", "input_schema": TOOL}]
    common = {"model": "m", "max_tokens": 4096, "tools": tools}
    messages = [{"role": "user", "content": "look"}]
    with client.messages.stream(messages=messages, **common) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
    thinking, call = message.content
    assert thinking.thinking == "I look first." and thinking.signature.startswith("sealed-"), thinking
    assert call.name == "run_commands" and call.input == {"command": "echo hi"}, call
    assert message.stop_reason == "tool_use" and message.usage.input_tokens > 0, message
    content = [
        {"type": "thinking", "thinking": thinking.thinking, "signature": thinking.signature},
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.input},
    ]
    messages.append({"role": "assistant", "content": content})
    unanswered = messages + [{"role": "user", "content": "well?"}]
    refused(lambda: client.messages.create(messages=unanswered, **common), anthropic.BadRequestError, 400)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "hi"}
    messages.append({"role": "user", "content": [result]})
    changed = [dict(content[0], thinking="Something else."), content[1]]
    changed = [messages[0], {"role": "assistant", "content": changed}, messages[2]]
    error = refused(lambda: client.messages.create(messages=changed, **common), anthropic.BadRequestError, 400)
    assert "signature" in str(error), error
    with client.messages.stream(messages=messages, **common) as stream:
        assert "".join(stream.text_stream) == "There it is."
    assert client.messages.create(messages=messages, **common).content[0].text == "In one piece."
    refused(lambda: client.messages.create(messages=messages, **common), anthropic.RateLimitError, 429)
    refused(lambda: client.messages.create(messages=messages, **common), anthropic.BadRequestError, 400)
    refused(
        lambda: client.messages.create(messages=messages, extra_body={"nonsense": 1}, **common),
        anthropic.BadRequestError,
        400,
    )


{"openai": openai_responses, "anthropic": anthropic_messages}[sys.argv[1]](sys.argv[2])
print("ok")
