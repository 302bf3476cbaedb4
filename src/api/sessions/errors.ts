import { errorKinds } from '../http/errors.ts';

/** The errors that only the Sessions API has. */
export const SESSION_ERRORS = errorKinds({
  mixed_input: { status: 400, description: 'the input contains both user messages and answers to tool calls' },
  invalid_path: { status: 400, description: 'the path leads out of the workspace, or cannot be that of a file' },
  sandbox_not_found: { status: 404, description: 'the sandbox does not exist, or the caller may not read its session' },
  cell_running: { status: 409, description: 'code of the session runs, and may change the files: try again after it' },
  code_waits: {
    status: 409,
    code: 'actions_pending',
    description: 'code waits for a decision, and no turn runs: answer its calls, or reset the kernel',
  },
  file_too_large: { status: 413, description: 'the file is larger than 1 GiB' },
  workspace_full: { status: 422, description: 'the workspace would have more files or bytes than the agent allows' },
  action_not_found: { status: 404, description: 'the action does not exist, or is for others to decide' },
  rule_not_found: { status: 404, description: 'the session, or the caller for the agent, has no such rule' },
  code_tool_not_found: { status: 404, description: 'the caller, or the agent, has no such saved tool' },
  connection_not_found: { status: 404, description: 'the caller has no such connection to an MCP server' },
  invalid_code_tool: {
    status: 422,
    description:
      'the tool cannot be saved (its name or its code, or there are too many), or the agent has no saved tools; the message says why',
  },
  empty_message: { status: 422, description: 'a user message has neither text nor a file' },
  messages_required: { status: 422, description: '`on_running: "steer"` with an input that is not user messages' },
});
