package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// callable says why a call of the command line, as it is in a text, would not
// be understood when it is pasted; names in it are whatever they are.
func callable(args string) error {
	root := newRoot(streams{out: io.Discard, err: io.Discard, getenv: func(string) string { return "" }})
	cmd, rest, err := root.Find(strings.Fields(args))
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err == nil {
		err = cmd.ValidateRequiredFlags()
	}
	switch {
	case err != nil:
		return err
	case !cmd.Runnable(), cmd.HasSubCommands() && cmd.Name() != "watermark":
		return fmt.Errorf("%s stands for the commands below it", cmd.CommandPath())
	case cmd.Flags().Lookup("yes") != nil && !cmd.Flags().Changed("yes") && !cmd.Flags().Changed("dry-run"):
		return fmt.Errorf("%s is refused without --yes or --dry-run", cmd.CommandPath())
	}
	return nil
}

var (
	hintIn = regexp.MustCompile("`" + program + " ([^`]*)`")
	verb   = regexp.MustCompile(`%(\[\d\])?[sdvq]`)
)

// texts returns the strings of an expression, where what is no literal stands
// as a verb.
func texts(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return texts(e.X) + texts(e.Y)
		}
	}
	return "%s"
}

// What a message between backticks says to run can be run: it is a command that
// is there, with flags and arguments that it takes, and says that it is meant.
func TestEveryHintIsACommandThatCanBePasted(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text := texts(e)
			for _, hint := range hintIn.FindAllStringSubmatch(text, -1) {
				found++
				args := strings.NewReplacer("INDEX...", "x", "TEXT", "x", "FEED", "x", "FILE", "x").Replace(verb.ReplaceAllString(hint[1], "1"))
				if err := callable(args); err != nil {
					t.Errorf("%s: %s: %v", set.Position(e.Pos()), hint[0], err)
				}
			}
			return text == "%s" // what is in there was looked at
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 20 {
		t.Errorf("only %d hints were found", found)
	}
	t.Logf("%d hints", found)
}

// Commands in a message get the flags that say which cluster, where they take
// them and do not name it themselves.
func TestHintsNameTheClusterThatWasNamed(t *testing.T) {
	cmd := tree(t)["feed describe"]
	if err := cmd.ParseFlags([]string{"orders", "--embedded", "my data", "--format", "json"}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"see `flusso-kafka-admin feed repair orders --yes`, or `feed list`": "see `flusso-kafka-admin feed repair orders --yes --embedded 'my data'`, or `feed list`",
		"`flusso-kafka-admin read orders --embedded other`":                 "`flusso-kafka-admin read orders --embedded other`",
		"`flusso-kafka-admin profile list`":                                 "`flusso-kafka-admin profile list`",
		"`flusso-kafka-admin nonsense`":                                     "`flusso-kafka-admin nonsense`",
		"nothing":                                                           "nothing",
	} {
		if got := hinted(cmd, text); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := hinted(nil, "`flusso-kafka-admin lag`"); got != "`flusso-kafka-admin lag`" {
		t.Errorf("without a command: %s", got)
	}
	lanes := tree(t)["lane accept"]
	if err := lanes.ParseFlags([]string{"search", "--brokers", "a:1,b:2", "--pipeline", "shop"}); err != nil {
		t.Fatal(err)
	}
	const text = "`flusso-kafka-admin request send search INDEX... --yes`"
	if got, want := hinted(lanes, text), "`flusso-kafka-admin request send search INDEX... --yes --brokers a:1,b:2 --pipeline shop`"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
