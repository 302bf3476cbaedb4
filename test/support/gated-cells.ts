import { expect } from 'vitest';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import type { ApiClient, EventReader } from './api-client.ts';
import { answersTo, askedIn } from './code-turns.ts';
import { use, type Script } from './scripted-model.ts';

/** An agent whose cells wait for files, which its model writes once a person allows it. */
export const GATED: Partial<AgentSpec> = {
  code_actions: { approvals: { code: 'allow', file_write: 'ask' } },
  config: { pause: 'wait' },
};

/** Code that waits for a file. */
export const GATE = (file: string): string => `import os, time\nwhile not os.path.exists("${file}"): time.sleep(0.01)`;

/** The model runs a cell, and asks to write the files for which it waits. */
export function gatedBy(code: string, ...files: string[]): Script {
  const writes = files.map((file) => ({ name: 'write_file', args: { path: file, content: '' }, id: `write_${file}` }));
  return use({ name: 'ipython', args: { code } }, ...writes);
}

/** Allows one of the files, in a turn that a reader follows. */
export async function openGate(api: ApiClient, session: string, reader: EventReader, file: string): Promise<void> {
  const isOfFile = ({ tool_call_id: id }: { tool_call_id: string }): boolean => id === `write_${file}`;
  const asked = await reader.next((frame) => askedIn([frame]).some(isOfFile));
  const input = answersTo([asked]).filter((answer) => isOfFile(answer as { tool_call_id: string }));
  const { status, body } = await api.send('POST', `${session}/actions`, { input });
  expect(status, JSON.stringify(body)).toBe(200);
}
