package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/feeds"
)

// What the document says of places holds for each kind of them: of a record
// without commit, of one of a commit, beside a stream that is empty, behind a
// discard. A record that is looked up has none.
func TestOpenAPI_KnowsEveryPlace(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string
				Schema struct{ Pattern string }
			}
		}
		Components struct {
			Schemas struct {
				Record struct {
					Properties struct{ Place struct{ Pattern string } }
				}
				Line struct {
					AnyOf []struct {
						Properties struct{ Place struct{ Pattern string } }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	patterns := map[string]string{
		"Record": doc.Components.Schemas.Record.Properties.Place.Pattern,
		"Line":   doc.Components.Schemas.Line.AnyOf[1].Properties.Place.Pattern,
	}
	for _, p := range doc.Paths["/v1/feeds/{feed}/records"]["get"].Parameters {
		if p.Name == "after" || p.Name == "Last-Event-ID" {
			patterns[p.Name] = p.Schema.Pattern
		}
	}
	if len(patterns) != 4 || patterns["Record"] == "" || patterns["Line"] == "" {
		t.Fatalf("the patterns are %q", patterns)
	}

	w := newWorld(t, feeds.CreateOptions{Keyed: true})
	n := w.node("a")
	leave := func(s sessionJSON) {
		t.Helper()
		into[closedJSON](t, n.do(http.MethodPost, writePath(s, "close"), nil), http.StatusOK)
	}
	keyed := []byte(`{"records":[{"keyText":"k","text":"one"},{"keyText":"k","text":"two"}]}`)
	put := func(s sessionJSON) {
		t.Helper()
		into[rangeJSON](t, n.do(http.MethodPost, appendPath(s.Stream, s.FencingToken, 0, "b"), keyed, "Content-Type", typeJSON), http.StatusOK)
	}
	sealed := n.open()
	put(sealed)
	into[commitJSON](t, n.seal(sealed, ""), http.StatusOK)
	empty := n.open()
	leave(empty)
	dropped := n.open()
	put(dropped)
	leave(dropped)
	last := n.open()
	put(last)

	var places []string
	read := func(query string, header ...string) (last string) {
		t.Helper()
		got := n.get("/v1/feeds/orders/records?"+query, header...)
		if got.status != http.StatusOK {
			t.Fatalf("%s: %d %s", query, got.status, got.body)
		}
		for line := range strings.Lines(got.body) {
			var l struct{ Place string }
			if text, isData := strings.CutPrefix(line, "id: "); isData {
				l.Place = strings.TrimSuffix(text, "\n")
			} else if len(header) > 0 || strings.TrimSpace(line) == "" {
				continue
			} else if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			last = l.Place
			places = append(places, last)
		}
		return last
	}
	at := last.FeedID[:8] + "-"
	read("")
	if got, want := read("stream=3"), at+"1/4:2,2:0,3:2"; got != want {
		t.Errorf("beside an empty stream: %s, want %s", got, want)
	}
	before := places[len(places)-1]
	if err := w.client("admin", "").Discard(t.Context(), feed, dropped.Stream, ""); err != nil {
		t.Fatal(err)
	}
	gone := at + "1/2:0,4:2"
	for _, header := range [][]string{nil, {"Accept", typeEvents}} {
		if got := read("after="+url.QueryEscape(before), header...); got != gone {
			t.Errorf("behind the discard, with %q: %s, want %s", header, got, gone)
		}
	}
	places = append(places, at+"9007199254740991/9007199254740991:9007199254740991,1:0")
	for name, pattern := range patterns {
		re := regexp.MustCompile(pattern)
		for _, p := range places {
			if !re.MatchString(p) {
				t.Errorf("%s: %q does not match %s", name, p, pattern)
			}
		}
		for _, not := range []string{"x", "0/1:1", at + "0/0:1", at + "0/1", at + "00", at + "0/1:01"} {
			if re.MatchString(not) {
				t.Errorf("%s: %q matches %s", name, not, pattern)
			}
		}
	}

	got := n.get("/v1/feeds/orders/latest?key=k")
	if into[recordJSON](t, got, http.StatusOK).Stream != last.Stream || strings.Contains(got.body, `"place"`) {
		t.Errorf("latest answers %s", got.body)
	}
}
