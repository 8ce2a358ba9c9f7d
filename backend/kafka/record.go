package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func rawHeaders(headers redrive.Headers) []kgo.RecordHeader {
	h := make([]kgo.RecordHeader, len(headers))
	for i := range headers {
		h[i] = kgo.RecordHeader{Key: headers[i].Name, Value: headers[i].Value}
	}
	return h
}

func origin(topic string, partition int32, offset int64) string {
	return topic + "/" + strconv.Itoa(int(partition)) + "/" + strconv.FormatInt(offset, 10)
}

func deriveID(cluster, topic string, partition int32, offset int64) string {
	return driver.DeriveID("kafka", cluster, topic, strconv.Itoa(int(partition)), strconv.FormatInt(offset, 10))
}
