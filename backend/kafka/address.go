package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/address"
	"github.com/redrive/redrive/internal/kafkaconn"
)

// Ways in which a record goes to a dead-letter or retry topic, by the parameter "dead".
const (
	byTransaction = "transaction" // in one transaction with the offset
	byPublish     = "publish"     // before the offset: a crash between the two doubles it
)

// defaultTiers are the delays of the retry topics.
var defaultTiers = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour}

// target is what an address names.
type target struct {
	brokers []string
	connect []kgo.Opt // to them
	topic   string
	group   string
	share   string // group of shared records; "": group is one of partitions
	how     string // by transaction or by publish
	dlq     string
	prefix  string // prefix of the retry topics
	tiers   []time.Duration
	create  bool // missing topics
	native  bool // one of the parameters of native dead letters was given
	reach   *reachable
}

const addressHint = "write it as kafka://host:9092/topic?group=redrive, with TLS as kafkas://host:9093/topic"

func parse(text string) (*target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "kafka" && u.Scheme != "kafkas" || u.Host == "" {
		return nil, fmt.Errorf("%w address of Kafka", redrive.ErrInvalid)
	}
	t := &target{reach: new(reachable), topic: strings.Trim(u.Path, "/"), group: "redrive", how: byTransaction, tiers: defaultTiers}
	if t.topic == "" {
		return nil, fmt.Errorf("%w address of Kafka: it names no topic", redrive.ErrInvalid)
	}
	t.brokers = address.Hosts(u.Host, kafkaconn.Port)
	query := u.Query()
	if t.connect, err = kafkaconn.Options(t.brokers, u.Scheme == "kafkas", u.User, query); err != nil {
		return nil, err
	}
	for name := range query {
		t.native = t.native || name != "group" && name != "share" && name != "create"
	}
	err = address.Parameters(query, map[string]address.Parameter{
		"group": address.Text(&t.group), "share": address.Text(&t.share), "create": address.Switch(&t.create),
		"dead": address.OneOf(&t.how, byTransaction, byPublish), "dlq": address.Text(&t.dlq), "retry": address.Text(&t.prefix), "tiers": t.setTiers,
	})
	if err != nil {
		return nil, err
	}
	if t.share != "" && query.Has("group") {
		return nil, fmt.Errorf("%w address of Kafka: it names a group and a share group", redrive.ErrInvalid)
	}
	t.dlq = cmp.Or(t.dlq, t.topic+".dlq")
	t.prefix = cmp.Or(t.prefix, t.topic+".retry."+t.group)
	return t, nil
}

func (t *target) setTiers(list string) error {
	t.tiers = nil
	for text := range strings.SplitSeq(list, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return errors.New("write durations such as 1s,30s")
		}
		t.tiers = append(t.tiers, d)
	}
	slices.Sort(t.tiers)
	t.tiers = slices.Compact(t.tiers)
	return nil
}

// tier returns the topic of the shortest delay that is not below d.
func (t *target) tier(d time.Duration) string {
	i, _ := slices.BinarySearch(t.tiers, d)
	return t.tierTopic(t.tiers[min(i, len(t.tiers)-1)])
}

// tierTopic names the topic of a tier: orders.retry.shop.30s.
func (t *target) tierTopic(tier time.Duration) string {
	text := tier.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return t.prefix + "." + strings.ReplaceAll(text, "µ", "u")
}

func (t *target) tierTopics() []string {
	topics := make([]string, len(t.tiers))
	for i, tier := range t.tiers {
		topics[i] = t.tierTopic(tier)
	}
	return topics
}

// longest is the longest delay that a retry topic has.
func (t *target) longest() time.Duration { return t.tiers[len(t.tiers)-1] }
