package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// moment reads a time: RFC 3339, or an age, like 90s, 2h or 3d, before now.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < 36500 {
			return now.Add(-time.Duration(n * float64(24*time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usageError{fmt.Errorf("%s %q: give a time as 2026-01-31T12:00:00Z, or an age as 90s, 2h or 3d", flag, text)}
}
