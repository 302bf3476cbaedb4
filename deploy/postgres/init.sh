#!/bin/sh
# Run once by the image of PostgreSQL, on an empty database: what Everturn and Temporal need, and no more. Their user is
# not a superuser, who could run programs in the container. The superuser is left without a password, so that it can be
# reached from within the container only.
set -eu
psql --set=ON_ERROR_STOP=1 --no-psqlrc --username="$POSTGRES_USER" --dbname=postgres --set=password="$POSTGRES_PASSWORD" <<'SQL'
create role everturn login password :'password';
create database everturn owner everturn;
create database temporal owner everturn;
create database temporal_visibility owner everturn;
alter role current_user password null;
SQL
