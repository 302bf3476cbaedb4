import type { SessionEvent, StreamEvent, WireModelMessage } from '../../src/api/sessions/wire/events.ts';

/**
 * Folds a stream as the public SDKs do: an event with a known id replaces the stored one, a delta is merged into its
 * base, a delta without its base is dropped. Written from the contract, independently of the server's own fold.
 */
export class ClientFold {
  readonly #events = new Map<string, SessionEvent>();
  /** The output of calls in the sandbox whose results have not come, by the ids of these. */
  readonly outputs = new Map<string, string>();

  add(event: StreamEvent): void {
    if (event.type === 'turn.retrying') return;
    if (event.type === 'tool.response.delta') {
      const before = event.reset ? '' : (this.outputs.get(event.id) ?? '');
      this.outputs.set(event.id, before + event.content);
      return;
    }
    if (event.type !== 'model.message.delta') {
      this.outputs.delete(event.id);
      if (event.type === 'turn.done') this.outputs.clear();
      this.#events.set(event.id, structuredClone(event));
      return;
    }
    const base = this.#events.get(event.id);
    if (base?.type !== 'model.message') return;
    if (event.content) base.content += event.content;
    if (event.refusal) base.refusal = (base.refusal ?? '') + event.refusal;
    if (event.reasoning_content) base.reasoning_content = (base.reasoning_content ?? '') + event.reasoning_content;
    for (const delta of event.tool_calls ?? []) mergeToolCall(base.tool_calls, delta);
    if (event.finish_reason) base.finish_reason = event.finish_reason;
    if (event.usage) base.usage = event.usage;
    if (event.provider) base.provider = event.provider;
    if (event.model) base.model = event.model;
    if (event.attempts) base.attempts = event.attempts;
    if (event.misfit) base.misfit = event.misfit;
    if (event.activities) base.activities = event.activities;
  }

  get events(): SessionEvent[] {
    return [...this.#events.values()];
  }
}

type ToolCalls = WireModelMessage['tool_calls'];
type ToolCallDelta = NonNullable<Extract<StreamEvent, { type: 'model.message.delta' }>['tool_calls']>[number];

function mergeToolCall(calls: ToolCalls, delta: ToolCallDelta): void {
  calls[delta.index] ??= {
    id: '',
    type: 'function',
    function: { name: '', arguments: '' },
    tool_info: { type: 'truefoundry-system', name: '' },
  };
  const call = calls[delta.index];
  if (!call) return;
  if (delta.id) call.id = delta.id;
  if (delta.function.name) call.function.name = delta.function.name;
  if (delta.function.arguments) call.function.arguments += delta.function.arguments;
  if (delta.tool_info) call.tool_info = delta.tool_info;
  if (delta.provider_specific_fields) {
    call.provider_specific_fields = { ...call.provider_specific_fields, ...delta.provider_specific_fields };
  }
}
