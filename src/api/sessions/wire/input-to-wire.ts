import type { InputItem, StoredFile } from '../../../core/records/input.ts';
import type { Approval } from '../../../core/records/pending.ts';
import type { UserSteered } from '../../../core/records/turn.ts';
import { truncateMiddle, fairShare } from '../../../core/text.ts';
import { fieldsToWire } from '../../http/wire-fields.ts';
import { returnedApproval, returnedMessage, returnedResponse, type WireApproval, type WireInputItem } from './input.ts';
import type { NoFields } from './no-fields.ts';
import { subjectToWire } from './subject.ts';

/** The texts of one event share this many bytes: a `data:` line must stay below 1 MiB, or the Python client fails. */
export const MAX_TEXT_BYTES = 512 * 1024;

export function inputToWire(input: InputItem[], sessionId: string): WireInputItem[] {
  const texts = input.flatMap((item) => {
    if (item.type === 'user.tool_approval') return 'reason' in item.approval ? [item.approval.reason ?? ''] : [];
    return textsOf(item.content);
  });
  const fit = fitting(texts);
  return input.map((item): WireInputItem => {
    switch (item.type) {
      case 'user.message':
        return fieldsToWire(returnedMessage, { ...item, content: contentToWire(item.content, fit, sessionId) });
      case 'user.tool_approval': {
        const { approval, by, ...fields } = item;
        const shown = approvalToWire(approval, fit);
        return fieldsToWire(returnedApproval, { ...fields, approval: shown, by: by && subjectToWire(by) });
      }
      case 'user.tool_response': {
        const { content, by, ...fields } = item;
        return fieldsToWire(returnedResponse, { ...fields, content: fit(content), by: by && subjectToWire(by) });
      }
    }
  });
}

function approvalToWire(approval: Approval, fit: (text: string) => string): WireApproval {
  if (approval.status === 'deny') {
    const { status, reason, ...rest } = approval;
    rest satisfies NoFields;
    return { status, ...(reason !== undefined && { reason: fit(reason) }) };
  }
  const { status, edited, ...rest } = approval;
  rest satisfies NoFields;
  return { status, ...(edited && { arguments: objectOf(edited.arguments) }) };
}

/** Arguments that a person has edited. */
export function objectOf(json: string): Record<string, unknown> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object: see `editedArguments`
  return JSON.parse(json) as Record<string, unknown>;
}

export function textsOf(content: UserSteered['content']): string[] {
  if (typeof content === 'string') return [content];
  return content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
}

/** Cuts the texts of one event so that all of them fit into it. */
export function fitting(texts: string[]): (text: string) => string {
  const share = fairShare(texts, MAX_TEXT_BYTES);
  return (text) => truncateMiddle(text, share, (n) => `[${n} characters left out here; the model received them]`);
}

export function contentToWire(content: UserSteered['content'], fit: (text: string) => string, sessionId: string) {
  if (typeof content === 'string') return fit(content);
  return content.map((part) =>
    part.type === 'text'
      ? { type: 'text' as const, text: fit(part.text) }
      : { type: 'file' as const, name: part.name, data: fileData(part, sessionId) },
  );
}

function fileData(file: StoredFile, sessionId: string): string {
  return 'blob' in file ? fileUrl(file, sessionId) : `data:${file.mimeType};base64,${file.base64}`;
}

/**
 * The path of this server under which a client gets a file of its session. It is made when a record is mapped: records
 * contain no paths of routes.
 */
export function fileUrl(file: { blob: string; name: string; mimeType: string }, sessionId: string): string {
  const query = new URLSearchParams({ name: file.name, type: file.mimeType });
  return `/v1/agents/sessions/${sessionId}/files/${file.blob}?${query.toString()}`;
}
