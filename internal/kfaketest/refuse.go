package kfaketest

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// looksOnly reports whether a request changes nothing, so that the broker may
// answer it first and only the codes are replaced: its responses hold more
// than can be made up (brokers, coordinators).
func looksOnly(req kmsg.Request) bool {
	switch kmsg.Key(req.Key()) {
	case kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.OffsetFetch, kmsg.FindCoordinator, kmsg.DescribeGroups,
		kmsg.ListGroups, kmsg.ApiVersions, kmsg.DescribeConfigs, kmsg.DescribeProducers, kmsg.DescribeTransactions,
		kmsg.ListTransactions, kmsg.DescribeCluster, kmsg.OffsetForLeaderEpoch, kmsg.DescribeTopicPartitions,
		kmsg.ConsumerGroupDescribe, kmsg.DescribeLogDirs:
		return true
	}
	return false
}

// refuse fills resp as an answer to req that fails everything with code.
func refuse(req kmsg.Request, resp kmsg.Response, code int16) {
	mirror(reflect.ValueOf(req).Elem(), reflect.ValueOf(resp).Elem())
	setCodes(resp, code)
}

// mirror copies what request and response name alike: topics, partitions,
// groups and the like, so that every one asked for is answered.
func mirror(from, to reflect.Value) {
	for i := range to.NumField() {
		name := to.Type().Field(i).Name
		src, dst := from.FieldByName(name), to.Field(i)
		if name == "Version" || !src.IsValid() || !dst.CanSet() {
			continue
		}
		switch {
		case src.Type() == dst.Type():
			dst.Set(src)
		case src.Kind() == reflect.Slice && dst.Kind() == reflect.Slice &&
			src.Type().Elem().Kind() == reflect.Struct && dst.Type().Elem().Kind() == reflect.Struct:
			out := reflect.MakeSlice(dst.Type(), src.Len(), src.Len())
			for j := range src.Len() {
				if d, ok := reflect.TypeAssert[interface{ Default() }](out.Index(j).Addr()); ok {
					d.Default()
				}
				mirror(src.Index(j), out.Index(j))
			}
			dst.Set(out)
		case src.Kind() == reflect.Slice && dst.Kind() == reflect.Slice &&
			src.Type().Elem().Kind() == reflect.Int32 && dst.Type().Elem().Kind() == reflect.Struct:
			// Partitions named by number in the request, by struct in the response.
			out := reflect.MakeSlice(dst.Type(), src.Len(), src.Len())
			for j := range src.Len() {
				if f := out.Index(j).FieldByName("Partition"); f.IsValid() {
					f.Set(src.Index(j))
				}
			}
			dst.Set(out)
		}
	}
}

// setCodes puts code into every error code of resp.
func setCodes(resp kmsg.Response, code int16) { setIn(reflect.ValueOf(resp).Elem(), code) }

func setIn(v reflect.Value, code int16) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if v.Type().Field(i).Name == "ErrorCode" && f.Kind() == reflect.Int16 && f.CanSet() {
				f.SetInt(int64(code))
				continue
			}
			setIn(f, code)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				setIn(v.Index(i), code)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			setIn(v.Elem(), code)
		}
	}
}
