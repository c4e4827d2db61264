package deploy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

const dashboardFile = "grafana/flusso-kafka.json"

// panel is one of the dashboard.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`
	Field   struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
}

type dashboard struct {
	UID        string  `json:"uid"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

func readDashboard(t *testing.T) (dashboard, string) {
	t.Helper()
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d, string(b)
}

var (
	legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	windows     = strings.NewReplacer("$__rate_interval", "5m")
)

// TestDashboard_UsesWhatExists: metrics, labels and their values exist in the
// real exporter, in every expression, variable and legend.
func TestDashboard_UsesWhatExists(t *testing.T) {
	known := exported(t)
	d, text := readDashboard(t)
	used := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			used++
			expr := windows.Replace(target.Expr)
			for _, problem := range append(known.check(expr), known.checkLabels(target.Legend, expr, legendLabel)...) {
				t.Errorf("panel %q: %s", p.Title, problem)
			}
			if !strings.Contains(expr, "$pipeline") {
				t.Errorf("panel %q does not heed the variable: %s", p.Title, expr)
			}
		}
	}
	if all := strings.Count(text, `"expr":`); used < 20 || used != all {
		t.Errorf("%d expressions of %d were looked at", used, all)
	}
	variables := make(map[string]string)
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("variable %s: cannot read %s", v.Name, v.Definition)
			continue
		}
		for _, problem := range append(known.check(m[1]), known.checkLabels("{{"+m[2]+"}}", m[1], legendLabel)...) {
			t.Errorf("variable %s: %s", v.Name, problem)
		}
	}
	if variables["datasource"] != "datasource" || variables["pipeline"] != "query" {
		t.Errorf("the variables are %v", variables)
	}
}

// TestDashboard_CanBeRead: panels have a title and say what they show, lie
// beside each other, and have the unit of what they show.
func TestDashboard_CanBeRead(t *testing.T) {
	d, _ := readDashboard(t)
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d, %q: the number is taken, or there is no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies at column %d, line %d, where %q is or the page ends", p.Title, x, y, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("panel %q: description %q, data source %q, %d expressions", p.Title, p.Description, p.Datasource.UID, len(p.Targets))
			continue
		}
		wants := map[string]string{"_seconds{": "s", "_bytes{": "bytes"}
		for suffix, unit := range wants {
			if strings.Contains(p.Targets[0].Expr, suffix) && p.Field.Defaults.Unit != unit {
				t.Errorf("panel %q shows %s in the unit %q, want %q", p.Title, p.Targets[0].Expr, p.Field.Defaults.Unit, unit)
			}
		}
	}
}
