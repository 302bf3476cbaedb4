import type { Usage } from '../../../core/records/usage.ts';
import type { Span } from '../../../core/timeline.ts';
import { dollars } from '../../../lib/dollars.ts';
import { fieldsToWire } from '../../http/wire-fields.ts';
import { subjectToWire } from './subject.ts';
import { span, type WireSpan } from './timeline.ts';

export function spanToWire(spent: Span): WireSpan {
  const { startedAt = null, endedAt = null, isOpen = false, usage, startedBy, endedBy, ...fields } = spent;
  return fieldsToWire(span, {
    ...fields,
    startedAt,
    endedAt,
    pending: isOpen,
    ...(usage && used(usage)),
    startedBy: startedBy && subjectToWire(startedBy),
    endedBy: endedBy && subjectToWire(endedBy),
  });
}

function used({ inputTokens, outputTokens, costInUsd }: Usage) {
  return {
    tokens: { input: inputTokens, output: outputTokens },
    costInUsd: costInUsd && dollars(costInUsd),
  };
}
