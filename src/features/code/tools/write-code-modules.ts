import { replaceFolders } from '../kernel/replace-folders.ts';
import { TOOLS_PACKAGE, type CodeModules } from './code-modules.ts';

/** Replaces the modules in the folder of the tools. Other packages in it are kept. */
export function writeCodeModules(folder: string, { files }: Pick<CodeModules, 'files'>): Promise<void> {
  return replaceFolders(folder, [TOOLS_PACKAGE], files);
}
