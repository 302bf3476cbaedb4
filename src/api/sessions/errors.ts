import { errorKinds } from '../http/errors.ts';

/** The errors that only the Sessions API has. */
export const SESSION_ERRORS = errorKinds({
  mixed_input: [400, 'the input contains both user messages and answers to tool calls'],
  invalid_path: [400, 'the path leads out of the workspace, or cannot be that of a file'],
  sandbox_not_found: [404, 'the sandbox does not exist, or the caller may not read its session'],
  cell_running: [409, 'code of the session runs, and may change the files: try again after it'],
  code_waits: [
    409,
    'code waits for a decision, and no turn runs: answer its calls, or reset the kernel',
    { code: 'actions_pending' },
  ],
  file_too_large: [413, 'the file is larger than 1 GiB'],
  workspace_full: [422, 'the workspace would have more files or bytes than the agent allows'],
  action_not_found: [404, 'the action does not exist, or is for others to decide'],
  rule_not_found: [404, 'the session, or the caller for the agent, has no such rule'],
  code_tool_not_found: [404, 'the caller, or the agent, has no such saved tool'],
  connection_not_found: [404, 'the caller has no such connection to an MCP server'],
  invalid_code_tool: [
    422,
    'the tool cannot be saved (its name or its code, or there are too many), or the agent has no saved tools; the message says why',
  ],
  empty_message: [422, 'a user message has neither text nor a file'],
  messages_required: [422, '`on_running: "steer"` with an input that is not user messages'],
});
