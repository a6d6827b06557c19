// A vendor's own client talks to the tests' endpoint: a stream with thinking and a call, its result, a whole answer, errors. The script is
// that of tests/clients/vendor_clients.py.

import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'

const baseURL = process.env.ENDPOINT
const parameters = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] }
const status = (number, kind) => (error) => error instanceof kind && error.status === number
const collect = async (stream) => {
  const events = []
  for await (const event of stream) events.push(event)
  return events
}

async function openai() {
  const client = new OpenAI({ baseURL, apiKey: 'k', maxRetries: 0 })
  const tools = [{ type: 'function', name: 'run_commands', parameters, strict: false }]
  const common = { model: 'm', store: false, include: ['reasoning.encrypted_content'], tools }
  const create = (input, more = {}) => client.responses.create({ ...common, input, ...more })
  const stream = client.responses.stream({ ...common, input: [{ role: 'user', content: 'look' }] })
  const kinds = (await collect(stream)).map((event) => event.type)
  assert.deepEqual([kinds.at(0), kinds.at(-1)], ['response.created', 'response.completed'])
  const { output, usage } = await stream.finalResponse()
  const [reasoning, call] = output.map(({ parsed_arguments: _, ...item }) => item)
  assert.ok(reasoning.encrypted_content.startsWith('sealed-') && usage.input_tokens > 0)
  assert.deepEqual([call.name, call.arguments], ['run_commands', '{"command":"echo hi"}'])
  const asked = [{ role: 'user', content: 'look' }, reasoning, call]
  await assert.rejects(create(asked), status(400, OpenAI.BadRequestError))
  const input = [...asked, { type: 'function_call_output', call_id: call.call_id, output: 'hi' }]
  const changed = input.map((item) => (item.type === 'reasoning' ? { ...item, encrypted_content: 'other' } : item))
  await assert.rejects(create(changed), (error) => error.code === 'invalid_encrypted_content')
  const texts = (await collect(await create(input, { stream: true })))
    .filter((event) => event.type === 'response.output_text.delta')
    .map((event) => event.delta)
  assert.equal(texts.join(''), 'There it is.')
  assert.equal((await create(input)).output_text, 'In one piece.')
  await assert.rejects(create(input), status(429, OpenAI.RateLimitError))
  await assert.rejects(create(input), status(400, OpenAI.BadRequestError))
  await assert.rejects(create(input, { nonsense: 1 }), (error) => error.code === 'unknown_parameter')
}

async function anthropic() {
  const client = new Anthropic({ baseURL, apiKey: 'k', maxRetries: 0 })
  const tools = [{ name: 'run_commands', input_schema: parameters }]
  const common = { model: 'm', max_tokens: 4096, tools }
  const create = (messages, more = {}) => client.messages.create({ ...common, messages, ...more })
  const asked = { role: 'user', content: 'look' }
  const stream = client.messages.stream({ ...common, messages: [asked] })
  const kinds = (await collect(stream)).map((event) => event.type)
  assert.deepEqual([kinds.at(0), kinds.at(-1)], ['message_start', 'message_stop'])
  const message = await stream.finalMessage()
  const [{ thinking, signature }, { id, name, input }] = message.content
  assert.ok(thinking === 'I look first.' && signature.startsWith('sealed-'))
  assert.deepEqual([name, input, message.stop_reason], ['run_commands', { command: 'echo hi' }, 'tool_use'])
  const call = { type: 'tool_use', id, name, input }
  const answered = (thinking) => [
    asked,
    { role: 'assistant', content: [{ type: 'thinking', thinking, signature }, call] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content: 'hi' }] },
  ]
  const messages = answered(thinking)
  const unanswered = [...messages.slice(0, 2), { role: 'user', content: 'well?' }]
  await assert.rejects(create(unanswered), status(400, Anthropic.BadRequestError))
  await assert.rejects(create(answered('Something else.')), (error) => String(error).includes('signature'))
  assert.equal(await client.messages.stream({ ...common, messages }).finalText(), 'There it is.')
  assert.equal((await create(messages)).content[0].text, 'In one piece.')
  await assert.rejects(create(messages), status(429, Anthropic.RateLimitError))
  await assert.rejects(create(messages), status(400, Anthropic.BadRequestError))
  await assert.rejects(create(messages, { nonsense: 1 }), status(400, Anthropic.BadRequestError))
}

await { openai, anthropic }[process.argv[2]]()
console.log('passed')
