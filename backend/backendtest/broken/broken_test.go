package broken_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/backend/backendtest/broken"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func judge(t *testing.T, wrap func(driver.Store) driver.Store) []string {
	c := &clock{now: time.Now()}
	failed, m := backendtest.Judge(t, backendtest.Factory{
		Open:     func(testing.TB) driver.Store { return wrap(memory.New(memory.WithClock(c.read))) },
		Advance:  c.advance,
		Flip:     backendtest.FlipShared,
		Patience: 300 * time.Millisecond,
	})
	if len(m.Rows()) < 100 {
		t.Errorf("only %d cases ran", len(m.Rows()))
	}
	return failed
}

// TestSoundStorePasses shows that it is not the judge who fails the broken ones.
func TestSoundStorePasses(t *testing.T) { // not parallel: a case looks for goroutines left behind
	if failed := judge(t, func(s driver.Store) driver.Store { return s }); len(failed) > 0 {
		t.Errorf("a sound store failed %v", failed)
	}
}

// TestBrokenStoresFail proves that the suite finds each class of faults, by the cases
// that are there for it.
func TestBrokenStoresFail(t *testing.T) {
	t.Parallel()
	finds := map[string][]string{
		"no_fence":              {"32_AckAfterReclaimIsStale", "33_RetryAfterReclaimIsStale", "34_DeadAfterReclaimIsStale", "T4_LateResultWhileAnotherAttemptRuns", "T5_StaleSettleThenExtend", "T7_AckOfAnothersClaimIsRefused", "T16_LateAckDoesNotUndoARetry"},
		"lease_from_publish":    {"16_LeaseFromClaimNotPublish"},
		"drop_on_full":          {"15_TwoClaimersDisjoint", "46_DelayedDoNotCountAsInFlight", "T6_ConcurrentReceiversSeeNoErrors"},
		"batch_poisoned":        {"07_BatchResultPerItem", "08_OversizeIsPermanentError", "36_BatchSettleMixedStale"},
		"naive_move":            {"48_MoveTwiceOneCopy", "51_BodyHeadersHistoryIntact"},
		"commit_highest":        {"36_BatchSettleMixedStale", "29_AckRemoves"},
		"lost_wake_up":          {"24_WakeUpLostStillPolled", "WaitTellsOfManyQueues"},
		"forgets_old_fences":    {"FenceWaitingAfterTwoLeases", "FenceDeadAfterTwoLeases"},
		"no_dead_fence":         {"FenceDeadAfterOneLease", "FenceDeadAfterTwoLeases", "FenceBetweenWaitingAndDead"},
		"never_checks":          {"ChecksumOfWhatWaits", "ChecksumOfADeadLetter", "ChecksumEveryWayIn"},
		"recomputes_at_redrive": {"ChecksumARedriveHidesNothing"},
		"due_now_bears_no_plan": {"DueNowByCause"},
		"retries_anything":      {"DueNowByCause"},
		"edit_forgets":          {"ChecksumFollowsEdits"},
		"edits_blindly":         {"EditsOfEachMessage"},
		"extends_too_long":      {"LeaseEndsInTime"},
		"search_folds_case":     {"SearchIsLiteral"},
		"search_is_stale":       {"SearchFollowsEverything"},
		"causes_end_early":      {"AllCausesInPages"},
		"retry_at_once":         {"39_NotEarly", "41_MixedDelaysNoHeadOfLine", "45_RescheduleWithoutBurningAttempt"},
	}
	for name, wrap := range broken.Stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := judge(t, wrap)
			if len(finds[name]) == 0 {
				t.Fatalf("no case is named that must find %s", name)
			}
			for _, want := range finds[name] {
				if !slices.Contains(failed, want) {
					t.Errorf("%s passes %s; it fails %v", name, want, failed)
				}
			}
		})
	}
}
