import type { RunRequest } from './wire/request.ts';
import type { ResumeRequest } from './wire/resume.ts';
import type { Run, RunStreamEvent, RunSummary } from './wire/run.ts';

/** The examples of the documentation: one run. */

export const exampleRunRequest: RunRequest = {
  agent: { model: 'gpt-5-mini', instructions: ['Be brief.'], toolkits: [{ type: 'mcp', server: 'crm' }] },
  input: [{ type: 'message', role: 'user', content: [{ type: 'text', text: 'Which orders are late?' }] }],
};

export const exampleResumeRequest: ResumeRequest = {
  tool_results: [{ tool_call_id: 'call_1', content: [{ type: 'text', text: '21 degrees' }] }],
};

export const exampleRunSummary: RunSummary = {
  id: 'run_01kac6f1zy5c3n8s7k4b2g9d6w',
  object: 'run',
  agent_name: 'agent',
  created_at: '2026-11-21T09:30:00.000Z',
  metadata: {},
  status: 'completed',
  completed_at: '2026-11-21T09:30:02.310Z',
  turns: 1,
  usage: { input_tokens: 310, output_tokens: 6 },
  cost: null,
  unreported_attempts: 0,
};

const content = [{ type: 'text' as const, text: 'Orders 17 and 23.' }];

export const exampleRun: Run = {
  ...exampleRunSummary,
  content,
  output: [
    {
      type: 'model',
      id: 'item_01kac6f1zy5c3n8s7k4b2g9d6w_0',
      created_at: '2026-11-21T09:30:00.120Z',
      content,
      usage: { input_tokens: 310, output_tokens: 6 },
      model: 'gpt-5-mini',
      finish_reason: 'stop',
    },
  ],
};

const exampleRunEvent: RunStreamEvent = {
  event: 'partial',
  item_index: 0,
  delta: { index: 0, part: { type: 'text', text: 'Orders ' } },
  sequence_number: 1_000_002,
};

export const exampleSentRunEvent = { id: '1000002', data: JSON.stringify(exampleRunEvent) };
