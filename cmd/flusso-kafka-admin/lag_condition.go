package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/flusso/flusso-kafka/internal/status"
)

// condition is one on what waits in a lane; its zero value holds for all.
type condition struct {
	field string
	op    string
	value float64
}

var conditionText = regexp.MustCompile(`^\s*([a-z]*)\s*(>=|<=|!=|=|>|<)\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$`)

// units are those of a field: what one of them is.
var units = map[string]map[string]float64{
	"batches": {"": 1}, "envelopes": {"": 1}, "changes": {"": 1},
	"bytes": {
		"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	},
	"seconds": {
		"": 1, "s": 1, "ms": 1e-3, "m": 60, "min": 60, "h": time.Hour.Seconds(), "d": 24 * time.Hour.Seconds(),
	},
}

// parseCondition reads FIELD OP NUMBER UNIT, where field and unit may be left out.
func parseCondition(text string) (condition, error) {
	if text == "" {
		return condition{}, nil
	}
	m := conditionText.FindStringSubmatch(text)
	if m == nil {
		return condition{}, errors.New("want a comparison, as in '>0', 'bytes>10MiB' or 'seconds>60'")
	}
	c := condition{field: m[1], op: m[2]}
	switch c.field {
	case "":
		c.field = "batches"
	case "age":
		c.field = "seconds"
	}
	known, ok := units[c.field]
	if !ok {
		return condition{}, fmt.Errorf("%s is not counted: one of batches, envelopes, bytes, changes, seconds", c.field)
	}
	unit, ok := known[m[4]]
	if !ok {
		return condition{}, fmt.Errorf("%s is no unit of %s", m[4], c.field)
	}
	n, err := strconv.ParseFloat(m[3], 64)
	if err != nil {
		return condition{}, fmt.Errorf("number %s: %w", strings.TrimSpace(m[3]), err)
	}
	c.value = n * unit
	return c, nil
}

// holds reports whether a lane matches. One whose lag is not known may match,
// and so does.
func (c condition) holds(l status.Lane) bool {
	if c.op == "" || !l.Known {
		return true
	}
	var n float64
	switch c.field {
	case "batches":
		n = float64(*l.Batches)
	case "envelopes":
		n = float64(*l.Envelopes)
	case "bytes":
		n = float64(*l.Bytes)
	case "changes":
		n = float64(*l.Changes)
	case "seconds":
		n = *l.Seconds
	}
	switch c.op {
	case ">":
		return n > c.value
	case ">=":
		return n >= c.value
	case "<":
		return n < c.value
	case "<=":
		return n <= c.value
	case "!=":
		return n != c.value
	}
	return n == c.value
}
