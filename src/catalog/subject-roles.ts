import { z } from 'zod';
import { ROLES, type Role } from '../core/subject.ts';
import { Store } from './store.ts';

const storedRoles = z.array(z.enum(ROLES));

/** Roles as columns have them. */
export function rolesIn(json: string): Role[] {
  return storedRoles.parse(JSON.parse(json));
}

/** The roles of a bearer according to a token. */
export interface BearerRoles {
  subjectId: string;
  roles: readonly Role[];
  /** When the token was issued, in ISO-8601. */
  issuedAt: string;
}

/** The roles of bearers, which only their tokens contain. */
export class SubjectRoles extends Store {
  /** Records the roles in a token, unless a newer token was seen: an older token stays valid until it expires. */
  async record({ subjectId, roles, issuedAt }: BearerRoles): Promise<void> {
    const row = { subject_id: subjectId, roles: JSON.stringify(roles), issued_at: issuedAt };
    await this.db
      .insertInto('subject_roles')
      .values(row)
      .onConflict((conflict) =>
        conflict.column('subject_id').doUpdateSet(row).where('subject_roles.issued_at', '<=', issuedAt),
      )
      .execute();
  }

  /** The roles by the newest token that was seen; undefined if none was. */
  async get(subjectId: string): Promise<Role[] | undefined> {
    const row = await this.db
      .selectFrom('subject_roles')
      .select('roles')
      .where('subject_id', '=', subjectId)
      .executeTakeFirst();
    return row && rolesIn(row.roles);
  }
}
