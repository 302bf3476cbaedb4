import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';
import { open, opendir, readdir, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { LRUCache } from 'lru-cache';
import { errorMessage, StartupError } from '../../lib/errors.ts';
import { skillName, skillPath } from '../../spec/skill-spec.ts';
import { parseSkill, SKILL_FILE, SkillError, type ParsedSkill } from './skill-file.ts';

/** Longer texts are rejected: they would be cut for the model, without a notice to their author. */
const MAX_SKILL_BYTES = 64 * 1024;
const MAX_FILE_BYTES = 1024 * 1024;

/** The number of entries of a skill's folder that are read for the list of its files. */
const MAX_ENTRIES = 500;

/** A skill in a folder. */
interface FoundSkill extends ParsedSkill {
  folder: string;
}

/**
 * The skills in the folders of `EVERTURN_SKILLS`, which contain `<name>/SKILL.md`. A file is read again when it has
 * changed, so an edit applies from the next model call.
 */
export class SkillFolders {
  readonly #folders: readonly string[];
  readonly #parsed = new LRUCache<string, { version: string; skill: FoundSkill }>({ max: 1_000 });

  constructor(folders: readonly string[]) {
    this.#folders = folders;
  }

  /** Reads all skills once. @throws StartupError that names a folder or a skill that cannot be read */
  async check(): Promise<void> {
    for (const folder of this.#folders) {
      let names: string[];
      try {
        names = await readdir(folder);
      } catch (error) {
        throw new StartupError(`EVERTURN_SKILLS: the folder ${folder} cannot be read: ${errorMessage(error)}`);
      }
      for (const name of names.filter((one) => !one.startsWith('.')).toSorted()) {
        try {
          await this.#read(path.join(folder, name));
        } catch (error) {
          const where = path.join(folder, name);
          throw new StartupError(`EVERTURN_SKILLS: ${where}: ${errorMessage(error)}`, { cause: error });
        }
      }
    }
  }

  /** The skill with this name, from the first folder that contains it. @throws SkillError */
  async find(name: string): Promise<FoundSkill> {
    if (skillName.safeParse(name).success) {
      for (const folder of this.#folders) {
        const skill = await this.#read(path.join(folder, name));
        if (skill) return skill;
      }
    }
    throw new SkillError(`there is no skill ${name} on this server`);
  }

  /** A file of a skill. @throws SkillError */
  async content({ folder, name }: FoundSkill, file: string): Promise<Buffer> {
    const bytes = isPath(file) ? await readWithin(folder, file, MAX_FILE_BYTES) : undefined;
    if (!bytes) throw new SkillError(`the skill ${name} has no file ${JSON.stringify(file)}`);
    return bytes;
  }

  /** The text of a file of a skill. @throws SkillError */
  async text(skill: FoundSkill, file: string): Promise<string> {
    const bytes = await this.content(skill, file);
    if (!isUtf8(bytes) || bytes.includes(0)) {
      throw new SkillError(`${file} of the skill ${skill.name} is not a text file`);
    }
    return bytes.toString();
  }

  /** The paths of a skill's files beside its `SKILL.md`, without hidden ones; only some of them if they are many. */
  async files({ folder }: FoundSkill): Promise<string[]> {
    return (await unlessMissing(() => filesIn(folder))) ?? [];
  }

  /** Reads a skill; undefined if the folder has no `SKILL.md`. @throws SkillError */
  async #read(folder: string): Promise<FoundSkill | undefined> {
    const version = await versionOf(path.join(folder, SKILL_FILE));
    if (version === undefined) return undefined;
    const known = this.#parsed.get(folder);
    if (known?.version === version) return known.skill;
    const bytes = await readWithin(folder, SKILL_FILE, MAX_SKILL_BYTES);
    if (!bytes) return undefined;
    const skill = { ...parseSkill(bytes.toString(), path.basename(folder)), folder };
    this.#parsed.set(folder, { version, skill });
    return skill;
  }
}

function isPath(file: string): boolean {
  return skillPath.safeParse(file).success;
}

async function filesIn(folder: string): Promise<string[]> {
  const files: string[] = [];
  let entries = 0;
  for await (const entry of await opendir(folder, { recursive: true })) {
    entries += 1;
    if (entries > MAX_ENTRIES) break;
    if (!entry.isFile() && !entry.isSymbolicLink()) continue;
    const file = path.relative(folder, path.join(entry.parentPath, entry.name)).replaceAll(path.sep, '/');
    if (file !== SKILL_FILE && isPath(file)) files.push(file);
  }
  return files.toSorted();
}

/** A text that changes with the content of a file; undefined if the file does not exist. @throws SkillError */
async function versionOf(file: string): Promise<string | undefined> {
  return unlessMissing(async () => {
    const { dev, ino, size, mtimeMs, ctimeMs } = await stat(file);
    return [dev, ino, size, mtimeMs, ctimeMs].join();
  });
}

/**
 * Reads a regular file whose real path is within the real path of the folder, so that a link cannot lead out of it;
 * undefined if there is none.
 * @throws SkillError
 */
async function readWithin(folder: string, file: string, maxBytes: number): Promise<Buffer | undefined> {
  return unlessMissing(async () => {
    const root = await realpath(folder);
    const real = await realpath(path.join(root, file));
    if (!real.startsWith(root + path.sep)) throw new SkillError(`${file} is outside of the folder of its skill`);
    // Opening a pipe would block without O_NONBLOCK.
    const handle = await open(real, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const stats = await handle.stat();
      if (!stats.isFile()) return undefined;
      if (stats.size > maxBytes) throw new SkillError(`${file} has more than ${maxBytes} bytes`);
      return await handle.readFile();
    } finally {
      await handle.close();
    }
  });
}

/** Undefined if the file does not exist. @throws SkillError without the path of the file, which is the operator's */
async function unlessMissing<T>(read: () => Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof SkillError) throw error;
    const code = error instanceof Error && 'code' in error ? String(error.code) : errorMessage(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new SkillError(`it cannot be read (${code})`, { cause: error });
  }
}
