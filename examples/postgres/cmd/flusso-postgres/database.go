package main

import (
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

// database is a connection string from one of three places.
type database struct {
	name   string // "source" or "target"
	env    string
	getenv func(string) string
	flag   string
	file   string
}

func (d *database) addFlags(flags *pflag.FlagSet, name string, getenv func(string) string) {
	d.name, d.env, d.getenv = name, "FLUSSO_"+strings.ToUpper(name)+"_URL", getenv
	flags.StringVar(&d.flag, name, "", "connection `string` of the "+name+" database, without a password ($"+d.env+" may have one, and so may ~/.pgpass)")
	flags.StringVar(&d.file, name+"-file", "", "`file` that holds it")
}

var passwordPair = regexp.MustCompile(`(?i)(^|\s)password\s*=`)

// url returns the connection string.
func (d *database) url() (string, error) {
	switch {
	case d.flag != "":
		u, err := url.Parse(d.flag)
		secret := passwordPair.MatchString(d.flag)
		if err == nil && u.Scheme != "" {
			_, in := u.User.Password()
			secret = in || u.Query().Has("password")
		}
		if secret {
			return "", usagef("--%s holds a password, and every user of the machine can read it there: put it into $%s or a file (--%s-file)", d.name, d.env, d.name)
		}
		return d.flag, nil
	case d.file != "":
		raw, err := os.ReadFile(d.file)
		if err != nil {
			return "", usagef("--%s-file: %w", d.name, err)
		}
		return strings.TrimSpace(string(raw)), nil
	}
	if v := d.getenv(d.env); v != "" {
		return v, nil
	}
	return "", usagef("no %s database: set $%s, or give --%s or --%s-file", d.name, d.env, d.name, d.name)
}
