import type { ModelCallPart } from '../agents/model-call-part.ts';
import { budgetsPart, type SharedBudgets } from './budgets/shared-budgets.ts';
import { codePart } from './code/code-part.ts';
import type { SavedToolSources } from './code/saved-tools/listed-saved-tools.ts';
import type { StoredWorkspaces } from './code/workspace/stored-workspace.ts';
import { COMPACTION } from './compaction/compact-conversation.ts';
import type { FileTexts } from './files/file-texts.ts';
import { fileTextsPart } from './files/read-files.ts';
import { TOOLKITS } from './run-support/client-toolkits.ts';
import { signInPart } from './sign-in/request-sign-ins.ts';
import type { SignIns } from './sign-in/sign-ins.ts';
import { skillsPart } from './skills/read-skill.ts';
import type { Skills } from './skills/skills.ts';

interface PartSources {
  catalog: SavedToolSources;
  budgets: Pick<SharedBudgets, 'metered'>;
  files: FileTexts;
  signIns: Pick<SignIns, 'request' | 'isDeclined'>;
  skills: Pick<Skills, 'list'>;
  workspaces: StoredWorkspaces;
  ensureHost: (() => unknown) | undefined;
}

/** What features add to model calls, in this order: conversations are compacted with the texts of their files. */
export function modelCallParts({
  catalog,
  budgets,
  files,
  signIns,
  skills,
  workspaces,
  ensureHost,
}: PartSources): ModelCallPart[] {
  return [
    TOOLKITS,
    skillsPart(skills),
    codePart({ catalog, workspaces, ensureHost }),
    fileTextsPart(files),
    COMPACTION,
    signInPart(signIns),
    budgetsPart(budgets),
  ];
}
