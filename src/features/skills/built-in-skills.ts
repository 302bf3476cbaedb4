import type { AgentSpec } from '../../spec/agent-spec.ts';
import { codeActionsOf } from '../../spec/code-actions.ts';
import type { AgentSkill } from '../../spec/skill-spec.ts';

interface BuiltInSkill extends AgentSkill {
  name: string;
  /** Whether it is about saved tools. */
  isOfSavedTools: boolean;
}

const SAVING_TOOLS: BuiltInSkill = {
  name: 'saving-tools',
  isOfSavedTools: true,
  description:
    'How working code becomes a tool that later sessions import. Read it before you call save_code_tool, and when you have ' +
    'solved a task that will be asked for again.',
  content: `# Saving tools

Save code when it works, was needed for the task, and would be written again for the next one like it. Do not save what is
specific to this conversation, and do not save code that you have not run.

1. Call \`list_code_tools\`: if a saved tool does nearly the same, save a new version of it instead of a second tool.
2. Take out what varies as parameters with types, such as dates, names and limits. Credentials and absolute paths stay out.
3. Write \`api\`: pydantic models of the result and a function \`run\` with type hints and a docstring. It is what the next
   reader sees, so it should be short. Put the rest into \`impl\`, and import it with \`from .impl import …\`.
4. Call \`save_code_tool\`. \`category\` is a word for tools of one kind, \`name\` says what the tool does, and \`description\` says
   in its first line when to use it. If the code does not compile, nothing is saved: correct it and call again.
5. Import it in a new cell, and run it once with other arguments than before. After a new version, import it again: names that
   were imported before keep the old one.

\`\`\`python
# api
from pydantic import BaseModel
from .impl import fetch_orders

class LateOrders(BaseModel):
    count: int
    ids: list[str]

def run(days: int = 7) -> LateOrders:
    """The orders that are more than \`days\` late."""
    ids = [order["id"] for order in fetch_orders() if order["late_days"] > days]
    return LateOrders(count=len(ids), ids=ids)
\`\`\`

A saved tool may call tools of servers by \`mcptools\`, and import other saved tools. Every such call is decided as in a cell.
`,
};

const OUTPUT_PARSERS: BuiltInSkill = {
  name: 'output-parsers',
  isOfSavedTools: true,
  description:
    'How the text of a tool becomes a typed result. Read it when a tool of a server returns str, and your code needs parts of ' +
    'that text more than once.',
  content: `# Output parsers

A tool of a server without an output schema returns a text. A saved parser turns it into a model, for all later code.

1. Run the tool with different arguments, also with some that find nothing, and print the beginning of each text. Find out
   whether it is JSON, a table, lines or prose, and what it says of an empty result or an error.
2. Write \`parse\` for all of these texts. Parse JSON with \`json.loads\`. Raise \`ValueError\` with the beginning of the text if it
   is none of them: a wrong result is worse than an exception.
3. Call \`save_code_tool\` with \`kind: "parser"\`. \`category\` and \`name\` are those of the tool's module: for
   \`mcptools.shop.find_items\`, category \`shop\` and name \`find_items\`. \`api\` defines \`ParseResult\` and
   \`parse(text: str) -> ParseResult\`.
4. Use it: \`from mcptools.shop.find_items import run_parsed, Params\`, then \`run_parsed(Params(…))\`; in tasks that run together
   \`await run_parsed_async(Params(…))\`.

\`\`\`python
# api
import json
from pydantic import BaseModel

class Item(BaseModel):
    sku: str
    left: int

class ParseResult(BaseModel):
    items: list[Item]

def parse(text: str) -> ParseResult:
    if text.strip() == "no items":
        return ParseResult(items=[])
    return ParseResult(items=json.loads(text))
\`\`\`

If a tool changes its text, save a new version of the parser. A tool with an output schema needs none.
`,
};

const TASK_PLANNING: BuiltInSkill = {
  name: 'task-planning',
  isOfSavedTools: false,
  description:
    'How long tasks are planned and followed in a file. Read it before a task with more than about five steps, or one that may ' +
    'continue in a later turn.',
  content: `# Task planning

Variables and your memory of a conversation can be lost; files of the workspace remain. Keep the plan in \`plan.md\`.

1. Look before you plan: read the files and list the tools that the task is about. Ask the user what only the user knows.
2. Write \`plan.md\`: the goal in a sentence, how you will check that it is reached, then the steps as \`- [ ] …\`. A step has a
   result that can be checked. Put what is uncertain first.
3. Do one step at a time. After each, mark it \`[x]\` and note its result in a line: numbers, paths of files, decisions and their
   reasons. Save data that later steps need as files, and note their paths.
4. If a step fails, or shows that the plan is wrong, change the plan in the file before you go on. Do not repeat a call that may
   have taken effect without looking whether it has.
5. At the beginning of a turn, and after a result says that variables are lost, read \`plan.md\` first.
6. When all steps are done, check the goal as the plan says, and tell the user what was done, and what was not.
`,
};

const BUILT_IN: readonly BuiltInSkill[] = [SAVING_TOOLS, OUTPUT_PARSERS, TASK_PLANNING];

export const BUILT_IN_NAMES: ReadonlySet<string> = new Set(BUILT_IN.map(({ name }) => name));

/** The built-in skills of an agent that acts in code, unless it disables them. */
export function builtInSkills(spec: AgentSpec): AgentSkill[] {
  const actions = codeActionsOf(spec);
  if (!actions) return [];
  return BUILT_IN.filter(({ isOfSavedTools }) => !isOfSavedTools || actions.savedTools !== 'none');
}
