import { WorkflowNotFoundError } from '@temporalio/client';
import { expect, test } from 'vitest';
import { isNotFound } from './errors.ts';

test('a signal to a workflow that has closed has not found it', () => {
  expect(isNotFound(new WorkflowNotFoundError('workflow execution already completed', 'turn/turn_1', undefined))).toBe(
    true,
  );
  expect(isNotFound(new Error('other'))).toBe(false);
});
