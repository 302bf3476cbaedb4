import { z } from 'zod';
import { FILE_URL, OWN_FILE_PATH } from '../../http/sent-files.ts';
import { ON_RUNNING } from '../../../core/session.ts';
import { bounded, identifier, line } from '../../../spec/bounds.ts';
import { BASE64, DATA_URI_HEAD } from '../../../spec/data-uri.ts';
import { rulePattern } from '../../../spec/permission-rule.ts';
import { subject } from './subject.ts';

/**
 * Turn input (`docs/sessions-api.md`, section 4), by the names of current and of older clients (section 6), and as it is
 * returned. Unknown keys are rejected.
 */

const MAX_ITEMS = 1_000;
const MAX_PARTS = 1_000;
const MAX_REASON_LENGTH = 10_000;

/** In bytes of JSON. */
const MAX_EDIT_BYTES = 64 * 1024;

const textPart = z.strictObject({ type: z.literal('text'), text: z.string() });

const fileName = line({ min: 1, max: 255 });

/** For the documentation only, as `BASE64` is. */
const DATA_URI = `${DATA_URI_HEAD}${BASE64}$`;

const fileData = z.string().meta({
  description:
    'data:<mime>;base64,<payload>, or an http or https URL, which is fetched before the turn starts, or the path that this server has given to a file',
  override: { pattern: `${DATA_URI}|${FILE_URL}|${OWN_FILE_PATH}` },
});

const filePart = z.strictObject({
  type: z.literal('file'),
  name: fileName,
  data: z.string().describe('data:<mime>;base64,<payload>, or the path of a file of this server if it is large'),
});

const sentFilePart = filePart.extend({ data: fileData });

const fileUploadPart = z
  .strictObject({
    type: z.literal('file_upload'),
    file: z.strictObject({ filename: fileName, file_data: fileData }),
  })
  .transform(({ file }) => ({ type: 'file' as const, name: file.filename, data: file.file_data }));

const userMessage = <P extends z.ZodType>(part: P) =>
  z.strictObject({
    type: z.literal('user.message'),
    content: z.union([z.string(), bounded(z.array(part), MAX_PARTS)]),
  });

const allowed = z.strictObject({
  status: z.literal('allow'),
  arguments: z
    .record(z.string(), z.unknown())
    .refine((edited) => Buffer.byteLength(JSON.stringify(edited)) <= MAX_EDIT_BYTES, 'must have at most 64 KiB')
    .nullish()
    .describe('the call runs with these arguments instead of those that the model wrote'),
});

const denied = z.strictObject({ status: z.literal('deny'), reason: z.string().max(MAX_REASON_LENGTH).nullish() });

const approval = z.discriminatedUnion('status', [allowed, denied]);

/** A year. */
const MAX_RULE_SECONDS = 31_536_000;

const remember = z
  .strictObject({
    scope: z
      .enum(['cell', 'session', 'always'])
      .describe('`cell`: until the code ends that has made the call; `always`: in all your sessions with the agent'),
    rule: rulePattern.nullish().describe('must match the call; default: its `suggested_rule`'),
    expires_in_seconds: z.int().min(1).max(MAX_RULE_SECONDS).nullish(),
  })
  .nullish()
  .describe('makes a rule with this decision, in an agent that acts in code');

const toolApproval = z.strictObject({
  type: z.literal('user.tool_approval'),
  thread_id: identifier,
  tool_call_id: identifier,
  approval,
});

const toolResponse = z.strictObject({
  type: z.literal('user.tool_response'),
  thread_id: identifier,
  tool_call_id: identifier,
  content: z.string(),
});

const author = { by: subject.optional().describe('who has answered, if that was before the turn could start') };

export const returnedMessage = userMessage(z.discriminatedUnion('type', [textPart, filePart]));

/** The content of a user message as it is returned. */
export const returnedContent = returnedMessage.shape.content;

export const returnedApproval = z.object({ ...toolApproval.shape, ...author });

export const returnedResponse = z.object({ ...toolResponse.shape, ...author });

/** An input item as it is returned: in `turn.created` and in turns. Later versions may add fields. */
export const inputItem = z
  .discriminatedUnion('type', [z.object(returnedMessage.shape), returnedApproval, returnedResponse])
  .meta({ id: 'TurnInputItem' });

/** What returned items have: see `author`. */
const returned = { by: z.unknown().optional().describe('of an item that was returned; it is not read') };

const sentApproval = toolApproval.extend({
  ...returned,
  approval: z.discriminatedUnion('status', [allowed.extend({ remember }), denied.extend({ remember })]),
});

const sentResponse = toolResponse.extend({ ...returned, content: z.string().min(1, 'must not be empty') });

const sentItem = z.discriminatedUnion('type', [
  userMessage(z.discriminatedUnion('type', [textPart, sentFilePart, fileUploadPart])),
  sentApproval,
  sentResponse,
]);

const sentItems = bounded(z.array(sentItem), MAX_ITEMS).meta({
  description: 'user messages, or answers to tool calls',
  override: ({ jsonSchema }) => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the JSON form of sentItem
    const [message, ...answers] = (jsonSchema.items as { oneOf: object[] }).oneOf;
    Object.assign(jsonSchema, { maxItems: MAX_ITEMS, anyOf: [{ items: message }, { items: { oneOf: answers } }] });
    delete jsonSchema.items;
  },
});

const MAX_ROUNDS = 10_000;

/** The body of `POST …/turns`. */
export const createTurnBody = z.strictObject({
  input: sentItems.nullish(),
  previous_turn_id: z.string().nullish(),
  stream: z.boolean().nullish(),
  on_running: z
    .enum(ON_RUNNING)
    .nullish()
    .describe('what happens if another turn runs; default: `config.on_running` of the agent'),
  max_turns: z
    .int()
    .min(1)
    .max(MAX_ROUNDS)
    .nullish()
    .describe(
      'after so many model calls of the agent, each with its tools, the turn that this starts ends as done, with ' +
        '`ended_by: "max_turns"`; default: the model stops calling tools first, or `config.iteration_limit` is reached. ' +
        'A request whose messages go to a running turn starts none: `max_turns` then has no effect.',
    ),
});

const MAX_ANSWERS = 50;

/** The body of `POST …/actions`. */
export const actionsBody = z.strictObject({
  input: bounded(z.array(z.discriminatedUnion('type', [sentApproval, sentResponse])).min(1), MAX_ANSWERS),
});

export type ActionsBody = z.infer<typeof actionsBody>;
export type WireApproval = z.infer<typeof approval>;
export type WireInputItem = z.infer<typeof inputItem>;
export type CreateTurnBody = z.infer<typeof createTurnBody>;
