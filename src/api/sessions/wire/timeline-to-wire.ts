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
    tokens: usage && { input: usage.inputTokens, output: usage.outputTokens },
    costInUsd: usage?.costInUsd && dollars(usage.costInUsd),
    startedBy: startedBy && subjectToWire(startedBy),
    endedBy: endedBy && subjectToWire(endedBy),
  });
}
