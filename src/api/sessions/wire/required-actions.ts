import { z } from 'zod';
import { ROLES } from '../../../core/subject.ts';
import { RULE_ACTIONS, rulePattern } from '../../../spec/permission-rule.ts';
import { event, timestamp } from './event.ts';

/** What the calls and servers of a turn wait for. */

const elicitation = z
  .discriminatedUnion('mode', [
    z.object({
      mode: z.literal('form'),
      message: z.string(),
      requested_schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the content that accepts the form'),
    }),
    z.object({
      mode: z.literal('url'),
      message: z.string(),
      url: z.string().describe('for the user to open, if they trust the server'),
    }),
  ])
  .meta({ id: 'Elicitation', description: 'what the MCP server of a call asks the user' });

const approvers = z.object({ subjects: z.array(z.string()), roles: z.array(z.enum(ROLES)) });

export const approvalPolicy = z
  .object({
    quorum: z.int().describe('how many subjects must allow the call; one denial decides'),
    approvers: approvers.optional().describe('absent: those with the right to decide in the session'),
    exclude_requester: z
      .literal(true)
      .optional()
      .describe('the owner of the session, and the author of the newest user message, may not decide'),
    expires_at: timestamp.optional(),
    escalates_at: timestamp.optional(),
    may_edit_arguments: z.boolean(),
  })
  .describe("the agent's policy for the call, if it has one");

export const askedAgain = z
  .string()
  .optional()
  .describe('set if a call that was approved is asked about once more: why, as a text for those who decide');

const codeAction = z
  .object({
    type: z.enum([...RULE_ACTIONS, 'shell_script']),
    display: z
      .string()
      .describe(
        'what a person must see: the code, the command, the tool or the task with its arguments, the path, the names and the code of a saved tool',
      ),
    tool: z.object({ server: z.string(), name: z.string() }).nullable(),
    command: z.string().nullable().describe('the whole command or script'),
    path: z.string().nullable(),
    suggested_rule: rulePattern
      .nullable()
      .describe('what `remember` makes a rule of if it names none; null if no rule says what the call does'),
    hash: z.string().describe('identifies the call with its arguments: a decision applies to no other'),
    expires_at: timestamp.nullable(),
    parent: z
      .object({ thread_id: z.string(), tool_call_id: z.string() })
      .nullable()
      .describe('the cell that has made it'),
  })
  .meta({ id: 'CodeAction' });

export const toolCallRef = z.object({
  id: z.string(),
  source_event_id: z.string(),
  event_id: z.string(),
  policy: approvalPolicy.optional(),
  elicitation: elicitation
    .optional()
    .describe('set if the call has begun and its server asks the user: the response is an answer, not a result'),
  unknown_outcome: z
    .string()
    .optional()
    .describe(
      'set if the call has begun and its outcome is unknown: a response says what happened, an approval has the call ' +
        'run again, a denial leaves it unknown',
    ),
  reason: askedAgain,
  action: codeAction.optional().describe('what is decided on, in an agent that acts in code'),
});

export type WireCodeAction = z.infer<typeof codeAction>;

const required = { thread_id: z.string(), tool_calls: z.array(toolCallRef) };

export const approvalRequired = event('ToolApprovalRequired', 'tool.approval_required', required);

export const responseRequired = event('ToolResponseRequired', 'tool.response_required', required);

export const authRequired = event('McpAuthRequired', 'mcp.auth_required', {
  thread_id: z.null(),
  mcp_servers: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      auth_url: z.string().describe('where the owner of the session signs in; empty for all others'),
    }),
  ),
  tool_calls: z.array(toolCallRef).describe('the calls that run after the sign-in'),
  servers: z.array(z.object({ mcp_server_name: z.string(), auth_url: z.string(), thread_ids: z.array(z.string()) })),
});

export const requiredAction = z.discriminatedUnion('type', [approvalRequired, responseRequired, authRequired]);

export type WireElicitation = z.infer<typeof elicitation>;
export type WireRequiredAction = z.infer<typeof requiredAction>;
