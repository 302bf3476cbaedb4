import type { Attempt } from '../core/attempts.ts';
import type { InputItem } from '../core/records/input.ts';
import type { LogRecord } from '../core/records/log.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { UserSteered } from '../core/records/turn.ts';
import { responseText } from '../core/tool-records.ts';
import type { TurnReport, Wait } from './turn-report.ts';

/** The characters of a text that a line shows. */
const MAX_SHOWN = 100;

/** Formats a report for display: the turn, its problems, its log line by line, and what it waits for. */
export function reportText(report: TurnReport): string {
  const { turnId, sessionId, previousTurnId, state, workflow, archive, log, waitsFor, problems, isFollowed } = report;
  const archived = archive.complete ? 'complete' : `up to entry ${archive.through}`;
  const head = [
    ['turn', turnId],
    ['session', sessionId],
    ['previous', previousTurnId ?? 'none'],
    ['state', isFollowed && state === 'action_required' ? `${state}, answered by a later turn` : state],
    [
      'workflow',
      workflow
        ? `${workflow.workflowId}, ${workflow.status}, run ${workflow.runId}, history of ${workflow.historyEvents} events and ${workflow.historyBytes} bytes`
        : 'unknown',
    ],
    ...(workflow?.version === undefined ? [] : [['workers', `version ${workflow.version}`]]),
    ['archive', archived],
  ].map(([name = '', value]) => `${name.padEnd(9)} ${value}`);
  const width = String(log.at(-1)?.ordinal ?? 0).length;
  const kinds = Math.max(0, ...log.map(({ record }) => record.kind.length));
  const entries = log.flatMap(({ ordinal, record }) => [
    `${String(ordinal).padStart(width)}  ${record.at}  ${record.kind.padEnd(kinds)}  ${summary(record)}`.trimEnd(),
    ...attemptLines(record).map((line) => `${' '.repeat(width)}  ${line}`),
  ]);
  return [
    ...head,
    ...problems.map((problem) => `problem   ${problem}`),
    '',
    ...(entries.length > 0 ? entries : ['The log is empty.']),
    '',
    ...(waitsFor.length > 0 ? ['It waits for', ...waitsFor.map((wait) => `  ${waitText(wait)}`)] : [nothing(report)]),
    '',
  ]
    .map(printable)
    .join('\n');
}

function nothing({ state }: TurnReport): string {
  return ['running', 'requested', 'unknown'].includes(state)
    ? 'It is not known what it waits for.'
    : 'It waits for nothing.';
}

function waitText({ for: what, toolCallId, tool, sessionId, since, activity }: Wait): string {
  const call = toolCallId === undefined ? '' : ` ${toolCallId}${tool === undefined ? '' : ` (${tool})`}`;
  const names: Record<Wait['for'], string> = {
    model: 'the model',
    tools: 'the lists of tools',
    tool: `the tool call${call}`,
    activity: `the activity ${activity?.name}`,
    worker: 'a worker to continue it',
    approval: `an approval of the tool call${call}`,
    sign_in: `the user to sign in to an MCP server${call && `, for the tool call${call}`}`,
    order: `earlier calls of its server, to run the tool call${call}`,
    delegate: `another agent, in session ${sessionId}, to answer the tool call${call}`,
    response: `the client's response to the tool call${call}`,
  };
  const parts = [`${names[what]}${since === undefined ? '' : ` since ${since}`}`];
  if (activity) {
    parts.push(`attempt ${activity.attempt}`, activity.state);
    if (activity.worker !== undefined) parts.push(`on ${activity.worker}`);
    if (activity.heartbeatAt !== undefined) parts.push(`last heartbeat ${activity.heartbeatAt}`);
    if (activity.lastFailure) {
      const { type, message } = activity.lastFailure;
      parts.push(`the last attempt failed: ${type === undefined ? '' : `${type}: `}${shown(message)}`);
    }
  }
  return parts.join(', ');
}

/** The attempts of the calls that took more than one. */
function attemptLines({ activities = [] }: LogRecord): string[] {
  return activities
    .filter(({ attempts }) => attempts.length > 1)
    .flatMap(({ attempts, toolCallId }) => attempts.map((attempt) => attemptText(attempt, toolCallId)));
}

function attemptText(attempt: Attempt, toolCallId: string | undefined): string {
  const { number, startedAt, endedAt, worker, outcome, provider, model, address, failure, reason } = attempt;
  const target = provider === undefined ? [] : [`${provider}/${model}${address === undefined ? '' : ` at ${address}`}`];
  const parts = [
    `${startedAt ?? 'unknown time'} to ${endedAt ?? 'unknown time'}`,
    ...(worker === undefined ? [] : [`on ${worker}`]),
    ...target,
    outcome ?? 'running',
    ...(failure === undefined ? [] : [failure]),
    ...(reason === undefined ? [] : [shown(reason)]),
  ];
  return `attempt ${number}${toolCallId === undefined ? '' : ` of ${toolCallId}`}: ${parts.join(', ')}`;
}

/** A record in one line. */
function summary(record: LogRecord): string {
  switch (record.kind) {
    case 'turn.created':
      return `by ${record.createdBy.subjectSlug}: ${record.input.map(inputText).join(', ') || 'no input'}`;
    case 'model.message':
      return messageText(record);
    case 'tool.response':
      return `${record.toolCallId} ${record.outcome}: ${shown(responseText(record))}`;
    case 'mcp.initialize':
      return [
        ...record.servers.map(({ name }) => name),
        ...(record.unavailable ?? []).map(({ name, reason }) => `${name} unavailable: ${reason}`),
      ].join(', ');
    case 'mcp.auth_required':
      return record.servers.map(({ name }) => name).join(', ');
    case 'thread.created':
      return `${record.thread.threadId} ${shown(record.thread.title)}: ${shown(record.input)}`;
    case 'thread.done':
      return `${record.threadId} ${record.end.status === 'done' ? 'done' : `error: ${shown(record.end.message)}`}`;
    case 'tool.approval_required':
    case 'tool.response_required':
      return record.calls.map(({ toolCallId }) => toolCallId).join(', ');
    case 'tool.decided':
      return `${record.toolCallId} ${record.decision}${record.by ? ` by ${record.by.subjectSlug}` : ''}`;
    case 'toolkit.refresh_required':
      return record.toolkits.join(', ');
    case 'toolkit.refreshed':
      return `${record.toolkit} by ${record.by.subjectSlug}`;
    case 'context.compacted':
      return `${record.threadId} ${record.tokensBefore} to ${record.tokensAfter} tokens`;
    case 'feature.event':
      return `${record.type} ${shown(JSON.stringify(record.data))}`;
    case 'turn.paused':
    case 'turn.resumed':
      return `${record.reason}${record.by ? ` by ${record.by.subjectSlug}` : ''}`;
    case 'user.steered':
      return `by ${record.by.subjectSlug}: ${contentText(record.content)}`;
    case 'turn.done': {
      const { end } = record;
      if (end.status === 'cancelled') return `cancelled: ${end.reason}`;
      return end.status === 'error' ? `error: ${shown(end.message)}` : 'done';
    }
  }
}

function inputText(item: InputItem): string {
  switch (item.type) {
    case 'user.message':
      return contentText(item.content);
    case 'user.tool_approval':
      return `${item.toolCallId} ${item.approval.status === 'allow' ? 'allowed' : 'denied'}`;
    case 'user.tool_response':
      return `${item.toolCallId} answered: ${shown(item.content)}`;
  }
}

function contentText(content: UserSteered['content']): string {
  const parts = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content;
  return parts.map((part) => (part.type === 'text' ? shown(part.text) : `file ${part.name}`)).join(', ');
}

function messageText({ content, refusal, toolCalls, finishReason, usage }: ModelMessage): string {
  const tokens = usage ? `, ${usage.inputTokens} tokens in, ${usage.outputTokens} out` : '';
  const parts = [
    ...(content ? [shown(content)] : []),
    ...(refusal ? [`refusal ${shown(refusal)}`] : []),
    ...toolCalls.map(({ id, name }) => `calls ${name} as ${id}`),
    `(${finishReason}${tokens})`,
  ];
  return parts.join(' ');
}

/** The beginning of a text, quoted. */
function shown(text: string): string {
  return JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);
}

/** Replaces characters that a terminal would interpret as commands, or that change the direction of text. */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '�');
}
