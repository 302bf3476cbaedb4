import { chmod, chown, mkdir, realpath } from 'node:fs/promises';
import path from 'node:path';

/** The folders of a sandbox. Its kernels may write `workspace`, `home`, `tmp` and `variables`, and read the others. */
export interface SandboxFolders {
  workspace: string;
  tools: string;
  skills: string;
  home: string;
  tmp: string;
  /** The folder in which one kernel stores its variables. */
  variables?: string;
}

/**
 * Creates the folders of a sandbox in `root`, which no other user can enter. Folders that exist are kept.
 *
 * @param uid the user of the sandbox, if it has one of its own
 */
export async function makeSandboxFolders(root: string, uid: number | undefined): Promise<SandboxFolders> {
  const folders = {
    workspace: path.join(root, 'workspace'),
    tools: path.join(root, 'tools'),
    skills: path.join(root, 'skills'),
    home: path.join(root, 'home'),
    tmp: path.join(root, 'tmp'),
  };
  await mkdir(root, { recursive: true });
  await Promise.all(Object.values(folders).map((folder) => mkdir(folder, { recursive: true })));
  if (uid !== undefined) {
    // Without tools and skills, which kernels only read.
    await Promise.all([root, folders.workspace, folders.home, folders.tmp].map((folder) => chown(folder, uid, uid)));
  }
  // By `chmod`, since the umask limits the mode of `mkdir`: the user of the sandbox must be able to read these folders.
  await Promise.all([folders.tools, folders.skills].map((folder) => chmod(folder, 0o755)));
  await chmod(root, 0o700);
  return folders;
}

/** The folders with links resolved: a wall allows the targets that paths have when it is put up. */
export async function resolveFolders(folders: SandboxFolders): Promise<SandboxFolders> {
  const { workspace, tools, skills, home, tmp, variables } = folders;
  return {
    workspace: await realpath(workspace),
    tools: await realpath(tools),
    skills: await realpath(skills),
    home: await realpath(home),
    tmp: await realpath(tmp),
    ...(variables !== undefined && { variables: await realpath(variables) }),
  };
}
