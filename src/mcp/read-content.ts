import type { ContentBlock } from '@modelcontextprotocol/client';
import { isFields, type Fields } from './fields.ts';

const MAX_BLOCKS = 1_000;
/** The kinds of unreadable parts that are named. */
const MAX_NAMED = 5;
const MAX_KIND_LENGTH = 40;

/**
 * Reads the parts of a result one by one, so that an odd one does not spoil the others. A line at the end names what
 * could not be read, and how many parts above 1,000 were left out.
 */
export function readContent(content: readonly unknown[]): ContentBlock[] {
  const blocks: ContentBlock[] = [];
  const unread: string[] = [];
  for (const part of content.slice(0, MAX_BLOCKS)) {
    const block = isFields(part) ? readBlock(part) : undefined;
    if (block) blocks.push(block);
    else unread.push(kindOf(part));
  }
  const omitted = content.length - MAX_BLOCKS;
  if (unread.length > 0) {
    const kinds = [...new Set(unread)].slice(0, MAX_NAMED).join(', ');
    blocks.push(note(`${unread.length} of the parts of this result could not be read: ${kinds}`));
  }
  if (omitted > 0) blocks.push(note(`${omitted} more parts of this result were left out`));
  return blocks;
}

/** The contents of resources that were read, as parts of a result. */
export function resourceBlocks(contents: readonly unknown[]): unknown[] {
  return contents.map((resource) => ({ type: 'resource', resource }));
}

/** A block with the fields that this client reads; undefined if it lacks one of them. */
function readBlock({ type, text, data, mimeType, resource, name, uri }: Fields): ContentBlock | undefined {
  switch (type) {
    case 'text':
      return typeof text === 'string' ? { type, text } : undefined;
    case 'image':
    case 'audio':
      return typeof data === 'string' ? { type, data, mimeType: textOr('', mimeType) } : undefined;
    case 'resource':
      return isFields(resource) ? readResource(resource) : undefined;
    case 'resource_link':
      return typeof uri === 'string' ? { type, uri, name: textOr(uri, name) } : undefined;
    default:
      return undefined;
  }
}

function readResource({ uri, mimeType, text, blob }: Fields): ContentBlock | undefined {
  const described = { uri: textOr('', uri), ...(typeof mimeType === 'string' && { mimeType }) };
  if (typeof text === 'string') return { type: 'resource', resource: { ...described, text } };
  return typeof blob === 'string' ? { type: 'resource', resource: { ...described, blob } } : undefined;
}

function kindOf(part: unknown): string {
  const type = isFields(part) ? part['type'] : undefined;
  return typeof type === 'string' ? JSON.stringify(type.slice(0, MAX_KIND_LENGTH)) : 'no type';
}

function note(text: string): ContentBlock {
  return { type: 'text', text: `[${text}]` };
}

function textOr(other: string, value: unknown): string {
  return typeof value === 'string' ? value : other;
}
