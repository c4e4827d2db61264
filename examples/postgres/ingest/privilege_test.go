package ingest_test

import (
	"strings"
	"testing"
)

// What README.md says of the role that ingest logs in as, in the same words.
func TestLeastPrivilege(t *testing.T) {
	for name, grants := range map[string]string{
		"member of the owner": `GRANT CREATE ON DATABASE $db TO $role;
GRANT $owner TO $role`,
		"SELECT only": `GRANT USAGE ON SCHEMA public TO $role;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO $role;
CREATE PUBLICATION $db FOR TABLE orders WITH (publish = 'insert, update, delete, truncate')`,
		"SELECT only, owner of the publication": `GRANT USAGE ON SCHEMA public TO $role;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO $role;
CREATE PUBLICATION $db FOR TABLE orders WITH (publish = 'insert, update, delete, truncate');
GRANT CREATE ON DATABASE $db TO $role;
ALTER PUBLICATION $db OWNER TO $role`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPipeline(t, `CREATE TABLE orders (id int PRIMARY KEY, big text, n int); ALTER TABLE orders ALTER big SET STORAGE EXTERNAL;
INSERT INTO orders SELECT g, repeat('x', 3000), 0 FROM generate_series(1, 10) g`)
			db := p.cfg.Slot
			role, owner := "reader_"+db, "owner_"+db
			words := strings.NewReplacer("$db", db, "$role", role, "$owner", owner)
			p.exec(words.Replace(`CREATE ROLE $owner; ALTER TABLE orders OWNER TO $owner; CREATE ROLE $role LOGIN REPLICATION`))
			p.exec(words.Replace(grants))
			p.cfg.Source = strings.Replace(p.source, "postgres@", role+"@", 1)
			p.start()
			p.equal()
			p.exec(`UPDATE orders SET n = 1; TRUNCATE orders; INSERT INTO orders VALUES (1, 'y', 2)`)
			p.equal()
			owned := name == "member of the owner"
			p.exec(words.Replace(`CREATE TABLE later (id int PRIMARY KEY); ALTER TABLE later OWNER TO $owner; INSERT INTO later VALUES (1); GRANT SELECT ON later TO $role`))
			if owned {
				p.equal()
			} else {
				p.logged("ADD TABLE ONLY")
			}
			if warned := strings.Contains(p.logs.String(), "cannot comment on the publication"); warned != (name == "SELECT only") {
				t.Errorf("the missing ownership of the publication was told: %t", warned)
			}
		})
	}
}
