import { applyDelta, emptyText, type MessageDelta, type MessageText, type ToolCallDelta } from '../../core/message.ts';
import { firstCallIndex } from './output-parts.ts';
import type { ModelPart, PartDelta } from './wire/run.ts';

export interface IndexedDelta {
  index: number;
  part: PartDelta;
}

/**
 * Translates the deltas of a message in progress to those of its parts. The index of a part is its position in the
 * item: reasoning, text, calls. A model may begin a part after one that stands behind it; the message starts over then.
 */
export class MessagePartials {
  readonly id: string;
  readonly #text: MessageText = emptyText();

  constructor(id: string) {
    this.id = id;
  }

  /** The deltas of the parts. `isReset`: they are of the whole message so far, in another order. */
  add(delta: MessageDelta): { deltas: IndexedDelta[]; isReset: boolean } {
    const { reasoning, content, toolCalls } = this.#text;
    const isReset =
      (!reasoning && !!delta.reasoning && (content !== '' || toolCalls.length > 0)) ||
      (!content && !!delta.content && toolCalls.length > 0);
    applyDelta(this.#text, delta);
    return { deltas: this.#deltasOf(isReset ? whole(this.#text) : delta), isReset };
  }

  #deltasOf({ reasoning, content, toolCalls = [] }: MessageDelta): IndexedDelta[] {
    const firstCall = firstCallIndex(this.#text);
    return [
      ...(reasoning ? [{ index: 0, part: { type: 'reasoning' as const, text: reasoning } }] : []),
      ...(content ? [{ index: this.#text.reasoning ? 1 : 0, part: { type: 'text' as const, text: content } }] : []),
      ...toolCalls.flatMap((call) => {
        const part = callDelta(call);
        return part ? [{ index: firstCall + call.index, part }] : [];
      }),
    ];
  }
}

function whole({ toolCalls, ...texts }: MessageText): MessageDelta {
  return { ...texts, toolCalls: toolCalls.map((call, index) => ({ index, ...call })) };
}

/** Id and name are in the first delta of a call. Undefined if there is nothing for the client in it. */
function callDelta({ id, name, arguments: args }: ToolCallDelta): PartDelta | undefined {
  if (!id && !args) return undefined;
  return {
    type: 'tool-call',
    ...(id && { tool_call_id: id }),
    ...(name && { tool_name: name }),
    ...(args && { args }),
    call: { type: 'function', ...(name && { name }), ...(args && { args }) },
  };
}

/** What comes with the end of a message: what the model has said and drawn, and the signatures of the parts. */
export function endDeltas(content: ModelPart[]): IndexedDelta[] {
  return content.flatMap((part, index): IndexedDelta[] => {
    if (part.type === 'audio' || part.type === 'image') return [{ index, part }];
    const { type, signature } = part;
    if (signature === undefined) return [];
    return [{ index, part: type === 'tool-call' ? { type, signature } : { type, text: '', signature } }];
  });
}
