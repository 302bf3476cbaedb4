import type { ChatRequest } from './scripted-model.ts';

/**
 * The rules of model providers about a conversation, as far as an earlier answer of a model, a tool or a user could
 * break them: a provider rejects each further request with such a conversation, so its session would be unusable. A
 * rule of one provider is checked for all, since the endpoint may be a gateway to any. Sources: OpenAI's reference of
 * chat completions, and the errors in these threads.
 *
 * - tool calls and their results: https://github.com/QwenLM/qwen-code/issues/606
 * - ids of at most 64 characters: https://github.com/jin-bo/agentao/pull/321
 * - ids that are unique in the conversation (Anthropic): https://github.com/trycua/cua/issues/524
 * - names of tools, also in earlier messages: https://github.com/mcp-use/mcp-use/issues/90
 * - a message of the user, or a result, at the end (Anthropic): https://github.com/aaif-goose/goose/issues/7425
 *
 * Arguments must be JSON objects because servers such as vLLM parse them to fill a model's template.
 */
export function brokenRules({ messages, tools = [] }: Pick<ChatRequest, 'messages' | 'tools'>): string[] {
  const broken: string[] = [];
  const require = (holds: boolean, place: string, rule: string): void => {
    if (!holds) broken.push(`${place}: ${rule}`);
  };
  const ids = new Set<string>();
  let open: string[] = [];
  for (const [i, message] of messages.entries()) {
    const { role, content, tool_call_id: answered, tool_calls: calls = [] } = message;
    const place = `messages[${i}]`;
    require(ROLES.has(role), place, `there is no role ${role}`);
    require(role !== 'system' || i === 0, place, 'a system message must be the first one');
    require(role === 'assistant' || calls.length === 0, place, 'only an assistant message has tool_calls');
    if (role === 'tool') {
      require(open.includes(
        answered ?? '',
      ), place, `tool_call_id ${answered} is not one of the open calls ${open.join()}`);
      require(typeof content === 'string', place, 'the content of a tool message must be a string');
      open = open.filter((id) => id !== answered);
      continue;
    }
    require(open.length === 0, place, `the calls ${open.join()} must be directly followed by their results`);
    const isEmpty = content === null || content === undefined || content.length === 0;
    const isAnswer = role === 'assistant' && (calls.length > 0 || message['refusal'] !== undefined);
    require(!isEmpty || isAnswer, place, 'the message is empty');
    const texts = Array.isArray(content) ? content.filter(({ type }) => type === 'text') : [];
    require(texts.every(({ text }) => text !== ''), place, 'a text part must not be empty');
    open = calls.map(({ id }) => id);
    for (const [j, { id, function: called }] of calls.entries()) {
      const at = `${place}.tool_calls[${j}]`;
      require(ID.test(id), at, `the id ${JSON.stringify(id)} must have 1 to 64 visible characters`);
      require(!ids.has(id), at, `the id ${id} is not unique in the conversation`);
      ids.add(id);
      require(NAME.test(called.name), at, `the name ${JSON.stringify(called.name)} does not match ${NAME.source}`);
      require(isJsonObject(
        called.arguments,
      ), at, `the arguments are not a JSON object: ${called.arguments.slice(0, 100)}`);
    }
  }
  require(open.length === 0, 'messages', `the calls ${open.join()} must be followed by their results`);
  const last = messages.at(-1)?.role;
  require(last === 'user' || last === 'tool', 'messages', `the last one must be of a user or a tool, not ${last}`);
  const names = tools.map(({ function: { name } }) => name);
  for (const name of names)
    require(NAME.test(name), 'tools', `the name ${JSON.stringify(name)} does not match ${NAME.source}`);
  require(new Set(names).size === names.length, 'tools', 'their names must be unique');
  return broken;
}

const ROLES = new Set(['system', 'user', 'assistant', 'tool']);
const ID = /^[\x21-\x7e]{1,64}$/;
const NAME = /^[a-zA-Z0-9_-]{1,64}$/;

function isJsonObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
