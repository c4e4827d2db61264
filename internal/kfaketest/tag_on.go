//go:build synctests

package kfaketest

const synctests = true
