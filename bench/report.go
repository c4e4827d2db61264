package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Report is what a row found. It is kept as JSON, one file for each row, so
// that a row can be run again alone.
type Report struct {
	Row     string   `json:"row"`
	Lines   []Line   `json:"lines"`
	Curves  []Curve  `json:"curves,omitempty"`
	Notes   []string `json:"notes,omitempty"` // what the lines do not say, a sentence each
	Machine Machine  `json:"machine"`
	Broker  string   `json:"broker"` // "Apache Kafka 4.3.1 in a container"
	// Settings are those that differ from run to run: pairs, sizes.
	Settings string `json:"settings"`
}

// Write keeps the report, and the drawing of each of its curves, in a folder.
func (r Report) Write(folder string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("report of row %s: %w", r.Row, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, c := range r.Curves {
		svg, err := c.SVG()
		if err != nil {
			return fmt.Errorf("curve %s of row %s: %w", c.Name, r.Row, err)
		}
		if err := os.WriteFile(filepath.Join(folder, c.Name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, r.Row+".json"), append(text, '\n'), 0o644)
}

// Read returns the reports that a folder has of rows, in their order.
func Read(folder string, rows []string) ([]Report, error) {
	var reports []Report
	for _, row := range rows {
		name := filepath.Join(folder, row+".json")
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r Report
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w: run the row again", name, err)
		}
		reports = append(reports, r)
	}
	return reports, nil
}
