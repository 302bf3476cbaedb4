import { expect, test } from 'vitest';
import { ruleFor } from './remembered-decisions.ts';
import type { ApprovalPolicy, ToolCall } from './records/calls.ts';

const info = (name: string): ToolCall['info'] => ({ type: 'mcp', serverId: 's', serverName: 's', name });
const policy = (more: Partial<ApprovalPolicy> = {}): ApprovalPolicy => ({ quorum: 1, onExpiry: 'deny', ...more });
const needs = 'approval' as const;

test('calls of the same tool with the same policy, or with none, have the same rule', () => {
  const rule = ruleFor({ info: info('pay') }, { needs });
  expect(rule).toBeDefined();
  expect(ruleFor({ info: info('pay') }, { needs })).toBe(rule);
  expect(ruleFor({ info: info('refund') }, { needs })).not.toBe(rule);
  const ofPolicy = ruleFor({ info: info('pay') }, { needs, policy: policy({ id: 'p' }) });
  expect(ofPolicy).toBeDefined();
  expect(ofPolicy).not.toBe(rule);
  expect(ruleFor({ info: info('pay') }, { needs, policy: policy({ id: 'q' }) })).not.toBe(ofPolicy);
});

test('only approvals of tools of servers are remembered', () => {
  for (const other of ['response', 'sign_in', 'order'] as const) {
    expect(ruleFor({ info: info('pay') }, { needs: other })).toBeUndefined();
  }
  expect(ruleFor({ info: { type: 'system', name: 'pay' } }, { needs })).toBeUndefined();
});

test('no decision is remembered if the policy says who decides each call, or has no id', () => {
  const named: Partial<ApprovalPolicy>[] = [
    { quorum: 2 },
    { approvers: { subjects: ['bob'], roles: [] } },
    { excludeRequester: true },
  ];
  for (const one of named) {
    expect(ruleFor({ info: info('pay') }, { needs, policy: policy({ id: 'p', ...one }) })).toBeUndefined();
  }
  expect(ruleFor({ info: info('pay') }, { needs, policy: policy() })).toBeUndefined();
});
