import type { ExpressionBuilder, Selectable } from 'kysely';
import type { Tables } from '../../../catalog/schema.ts';
import { changeRows, countRows, Store } from '../../../catalog/store.ts';
import type { Subject } from '../../../core/subject.ts';
import { newId } from '../../../engine/new-id.ts';
import { hashOf } from '../../../lib/hash.ts';
import {
  MAX_SAVED_TOOLS,
  signatureOf,
  type SavedTool,
  type SavedToolAbout,
  type SavedToolName,
  type SavedToolOwner,
} from './saved-tool.ts';
import '../tables.ts';

type Row = Selectable<Tables['saved_code_tools']>;

/** The sources of a saved tool. */
type Code = Pick<SavedTool, 'api' | 'impl'>;
type About = Pick<SavedToolAbout, 'kind' | 'description' | 'signature' | 'createdBy'>;

/** A request that has saved a version; its repetition saves no further one. */
interface SavedBy {
  request: string;
  version: number;
}

/** The number of remembered requests per tool. Requests are repeated within minutes. */
const MAX_REQUESTS = 20;

/** The tools that agents and clients have saved. Only the newest version of each is kept. */
export class SavedTools extends Store {
  /** The saved tools of an owner without their code, by category and name; only for the current agent of its name. */
  async list(place: SavedToolOwner): Promise<SavedToolAbout[]> {
    const rows = await this.db
      .selectFrom('saved_code_tools as tools')
      .innerJoin('agents', 'agents.name', 'tools.agent_name')
      .select(['id', 'category', 'tools.name', 'tools.version', 'hash', 'about', 'tools.updated_at'])
      .where('place', '=', placeKey(place))
      .whereRef('agents.created_at', '<=', 'tools.created_at')
      .orderBy('category')
      .orderBy('tools.name')
      .execute();
    return rows.map((row) => this.#about(row));
  }

  /** A saved tool with its code. */
  async get(place: SavedToolOwner, tool: SavedToolName): Promise<(SavedToolAbout & Code) | undefined> {
    const row = await this.db
      .selectFrom('saved_code_tools as tools')
      .innerJoin('agents', 'agents.name', 'tools.agent_name')
      .selectAll('tools')
      .where('place', '=', placeKey(place))
      .where('category', '=', tool.category)
      .where('tools.name', '=', tool.name)
      .whereRef('agents.created_at', '<=', 'tools.created_at')
      .executeTakeFirst();
    return row && { ...this.#about(row), ...this.#code(row) };
  }

  /**
   * Saves a tool, or its next version; undefined if the owner already has the maximum number.
   * @param request the id of the request, whose repetition finds the version that it has saved
   * @param now milliseconds since 1970
   */
  async save(
    place: SavedToolOwner,
    tool: SavedTool,
    { by, request }: { by: Subject; request: string },
    now: number,
  ): Promise<{ version: number; isNew: boolean } | undefined> {
    const { db } = this;
    const key = placeKey(place);
    const { category, name, kind, description, api, impl = null } = tool;
    const at = new Date(now).toISOString();
    await db.deleteFrom('saved_code_tools').where('place', '=', key).where(isOfEarlierAgent).execute();
    // Each concurrent change becomes a version of its own: a change that conflicts with another one is repeated.
    for (;;) {
      const known = await db
        .selectFrom('saved_code_tools')
        .select(['id', 'version', 'saved_by'])
        .where('place', '=', key)
        .where('category', '=', category)
        .where('name', '=', name)
        .executeTakeFirst();
      const requests = known ? savedBy(known) : [];
      const earlier = requests.find((one) => one.request === request);
      if (earlier) return { version: earlier.version, isNew: earlier.version === 1 };
      const id = known?.id ?? newId('tool');
      const version = (known?.version ?? 0) + 1;
      const about: About = { kind, description, signature: signatureOf(tool), createdBy: by };
      const changed = {
        version,
        hash: hashOf({ kind, description, api, impl }),
        about: this.cipher.sealText(JSON.stringify(about), aadFor(id, 'about')),
        code: this.cipher.sealText(JSON.stringify({ api, impl } satisfies Code), aadFor(id, 'code')),
        saved_by: JSON.stringify([...requests, { request, version }].slice(-MAX_REQUESTS)),
        updated_at: at,
      };
      if (known) {
        const update = db.updateTable('saved_code_tools').set(changed).where('id', '=', id);
        if (await changeRows(update.where('version', '=', known.version))) return { version, isNew: false };
        continue;
      }
      const ofPlace = db.selectFrom('saved_code_tools').where('place', '=', key);
      if ((await countRows(ofPlace)) >= MAX_SAVED_TOOLS) return undefined;
      const added = db
        .insertInto('saved_code_tools')
        .values({ id, place: key, agent_name: place.agentName, category, name, ...changed, created_at: at })
        .onConflict((conflict) => conflict.doNothing());
      if (await changeRows(added)) return { version, isNew: true };
    }
  }

  /** Deletes a tool. Returns whether the owner had it. */
  async delete(place: SavedToolOwner, { category, name }: SavedToolName): Promise<boolean> {
    const deleted = this.db
      .deleteFrom('saved_code_tools')
      .where('place', '=', placeKey(place))
      .where('category', '=', category)
      .where('name', '=', name)
      .where((eb) => eb.not(isOfEarlierAgent(eb)));
    return changeRows(deleted);
  }

  #about(row: Pick<Row, 'id' | 'category' | 'name' | 'version' | 'hash' | 'about' | 'updated_at'>): SavedToolAbout {
    const { id, category, name, version, hash, updated_at: updatedAt } = row;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `save`
    const about = JSON.parse(this.cipher.openText(row.about, aadFor(id, 'about'))) as About;
    return { category, name, ...about, version, hash, updatedAt };
  }

  #code({ id, code }: Pick<Row, 'id' | 'code'>): Code {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `save`
    return JSON.parse(this.cipher.openText(code, aadFor(id, 'code'))) as Code;
  }
}

function savedBy({ saved_by: requests }: Pick<Row, 'saved_by'>): SavedBy[] {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `save`
  return JSON.parse(requests) as SavedBy[];
}

/** Matches tools of an agent that was deleted after the tool was first saved; another agent may have the name now. */
function isOfEarlierAgent(eb: ExpressionBuilder<Tables, 'saved_code_tools'>) {
  return eb.not(
    eb.exists(
      eb
        .selectFrom('agents')
        .select('agents.name')
        .whereRef('agents.name', '=', 'saved_code_tools.agent_name')
        .whereRef('agents.created_at', '<=', 'saved_code_tools.created_at'),
    ),
  );
}

/** The key of an owner. */
function placeKey({ agentName, subjectId }: SavedToolOwner): string {
  return hashOf({ agentName, subjectId: subjectId ?? null });
}

function aadFor(id: string, column: 'about' | 'code'): string {
  return `saved_code_tools/${id}/${column}`;
}
