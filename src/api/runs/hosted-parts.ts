import type { Citation, HostedPart } from '../../core/sections.ts';
import type { GivenCitation, HostedCallPart, HostedResultPart, WireCitation } from './wire/hosted.ts';
import type { InputPart } from './wire/parts.ts';

/** The calls that a provider executes itself, and the sources of its texts, in the form of items' parts. */

export function hostedPart(hosted: HostedPart): HostedCallPart | HostedResultPart {
  return hosted.type === 'call' ? toHostedCall(hosted) : toHostedResult(hosted);
}

export function toHostedCall({ id, action, status }: HostedPart & { type: 'call' }): HostedCallPart {
  return {
    type: 'tool-call',
    tool_call_id: id,
    call: { type: 'web_search', ...(action && { action }), ...(status && { status }) },
  };
}

export function toHostedResult({ id, sources, errorCode }: HostedPart & { type: 'result' }): HostedResultPart {
  return {
    type: 'tool-result',
    tool_call_id: id,
    result: {
      type: 'web_search',
      sources: sources.map(({ pageAge, ...source }) => ({ ...source, ...(pageAge && { page_age: pageAge }) })),
      ...(errorCode && { error_code: errorCode }),
    },
    status: errorCode ? 'failed' : 'completed',
  };
}

export function citationOf({ citedText, startIndex, endIndex, ...citation }: Citation): WireCitation {
  return {
    ...citation,
    ...(citedText !== undefined && { cited_text: citedText }),
    ...(startIndex !== undefined && { start_index: startIndex }),
    ...(endIndex !== undefined && { end_index: endIndex }),
  };
}

type GivenHosted = Extract<InputPart, { hosted: object }>;

/** A part that a client has sent back. */
export function toHosted(part: GivenHosted): HostedPart {
  const { id } = part;
  if (part.type === 'tool-call') {
    const { action, status } = part.hosted;
    return { type: 'call', id, ...(action && { action }), ...(status && { status }) };
  }
  const { sources, error_code: errorCode } = part.hosted;
  return {
    type: 'result',
    id,
    sources: sources.map(({ url, title, page_age: pageAge, signature }) => ({
      url,
      ...(title && { title }),
      ...(pageAge && { pageAge }),
      ...(signature && { signature }),
    })),
    ...(errorCode && { errorCode }),
  };
}

export function toCitation(given: GivenCitation): Citation {
  const { source, title, cited_text: citedText, start_index: start, end_index: end, signature } = given;
  return {
    source,
    ...(title && { title }),
    ...(citedText && { citedText }),
    ...(typeof start === 'number' && { startIndex: start }),
    ...(typeof end === 'number' && { endIndex: end }),
    ...(signature && { signature }),
  };
}
