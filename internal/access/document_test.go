package access

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// section is what docs/security.md says of a role, from the table.
func section(t *testing.T, r Role, user string) string {
	t.Helper()
	ps := of(t, r)
	var b strings.Builder
	b.WriteString("| permission | needed for |\n| --- | --- |\n")
	for _, p := range ps {
		without := ""
		if p.Without != "" {
			without = ". It can be left out: " + p.Without
		}
		on := p.On()
		if p.Name != ClusterName {
			kind, _ := strings.CutSuffix(on, p.Name)
			kind, _ = strings.CutSuffix(kind, p.Name+"*")
			on = kind + "`" + strings.TrimPrefix(on, kind) + "`"
		}
		fmt.Fprintf(&b, "| `%s` on %s | %s%s |\n", OperationName(p.Operation), on, p.For, without)
	}
	b.WriteString("\n```sh\n" + strings.Join(Commands("$KAFKA", user, ps), "\n") + "\n```\n")
	return b.String()
}

// The document says what the table says: of every role the permissions, and the
// commands that grant them.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(Roles(), FeedRoles()) {
		user := "shop-" + string(r)
		switch {
		case r == Sink:
			user += "-search"
		case slices.Contains(FeedRoles(), r):
			user = "orders-" + strings.TrimPrefix(string(r), "feed-")
		}
		want := "### " + string(r) + "\n"
		if !strings.Contains(string(raw), want) {
			t.Errorf("docs/security.md has no section %q", want)
		}
		if want := section(t, r, user); !strings.Contains(string(raw), want) {
			t.Errorf("docs/security.md does not say of the role %s:\n%s", r, want)
		}
	}
}
