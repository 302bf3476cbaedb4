import { expect, test } from 'vitest';
import type { LogRecord } from '../../../core/records/log.ts';
import { isInView } from './view.ts';

test.each<[LogRecord['kind'], object, boolean]>([
  ['turn.created', {}, true],
  ['model.message', {}, true],
  ['tool.response', {}, true],
  ['mcp.initialize', {}, true],
  ['mcp.auth_required', {}, true],
  ['thread.created', {}, true],
  ['thread.done', {}, true],
  ['tool.approval_required', {}, true],
  ['tool.response_required', {}, true],
  ['tool.decided', {}, true],
  ['user.steered', {}, true],
  ['turn.done', {}, true],
  ['turn.paused', {}, true],
  ['turn.paused', { isHidden: true }, false],
  ['turn.resumed', {}, true],
  ['turn.resumed', { isHidden: true }, false],
  ['feature.event', {}, true],
  ['feature.event', { isHidden: true }, false],
  ['context.compacted', {}, false],
  ['context.compacted', { isShown: true }, true],
  ['toolkit.refresh_required', {}, false],
  ['toolkit.refreshed', {}, false],
])('%s %o reaches clients that do not ask for all events: %s', (kind, fields, isShown) => {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  const record = { kind, ...fields } as LogRecord;
  expect(isInView(record, 'default')).toBe(isShown);
  expect(isInView(record, 'full')).toBe(true);
});
