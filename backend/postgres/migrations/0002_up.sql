-- Publishing by SQL, version 2: redrive.publish in any client's own transaction.

-- The checksum of driver.Checksum goes on over more bytes: crc is the state before them,
-- 4294967295 at first; the checksum is the inverse of the last state.
CREATE FUNCTION redrive.crc32c(crc bigint, bytes bytea) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  step CONSTANT bigint[] := '{
    0,4067132163,3778769143,324072436,3348797215,904991772,648144872,3570033899,2329499855,2024987596,1809983544,2575936315,
    1296289744,3207089363,2893594407,1578318884,274646895,3795141740,4049975192,51262619,3619967088,632279923,922689671,3298075524,
    2592579488,1760304291,2075979607,2312596564,1562183871,2943781820,3156637768,1313733451,549293790,3537243613,3246849577,871202090,
    3878099393,357341890,102525238,4101499445,2858735121,1477399826,1264559846,3107202533,1845379342,2677391885,2361733625,2125378298,
    820201905,3263744690,3520608582,598981189,4151959214,85089709,373468761,3827903834,3124367742,1213305469,1526817161,2842354314,
    2107672161,2412447074,2627466902,1861252501,1098587580,3004210879,2688576843,1378610760,2262928035,1955203488,1742404180,2511436119,
    3416409459,969524848,714683780,3639785095,205050476,4266873199,3976438427,526918040,1361435347,2739821008,2954799652,1114974503,
    2529119692,1691668175,2005155131,2247081528,3690758684,697762079,986182379,3366744552,476452099,3993867776,4250756596,255256311,
    1640403810,2477592673,2164122517,1922457750,2791048317,1412925310,1197962378,3037525897,3944729517,427051182,170179418,4165941337,
    746937522,3740196785,3451792453,1070968646,1905808397,2213795598,2426610938,1657317369,3053634322,1147748369,1463399397,2773627110,
    4215344322,153784257,444234805,3893493558,1021025245,3467647198,3722505002,797665321,2197175160,1889384571,1674398607,2443626636,
    1164749927,3070701412,2757221520,1446797203,137323447,4198817972,3910406976,461344835,3484808360,1037989803,781091935,3705997148,
    2460548119,1623424788,1939049696,2180517859,1429367560,2807687179,3020495871,1180866812,410100952,3927582683,4182430767,186734380,
    3756733383,763408580,1053836080,3434856499,2722870694,1344288421,1131464017,2971354706,1708204729,2545590714,2229949006,1988219213,
    680717673,3673779818,3383336350,1002577565,4010310262,493091189,238226049,4233660802,2987750089,1082061258,1395524158,2705686845,
    1972364758,2279892693,2494862625,1725896226,952904198,3399985413,3656866545,731699698,4283874585,222117402,510512622,3959836397,
    3280807620,837199303,582374963,3504198960,68661723,4135334616,3844915500,390545967,1230274059,3141532936,2825850620,1510247935,
    2395924756,2091215383,1878366691,2644384480,3553878443,565732008,854102364,3229815391,340358836,3861050807,4117890627,119113024,
    1493875044,2875275879,3090270611,1247431312,2660249211,1828433272,2141937292,2378227087,3811616794,291187481,34330861,4032846830,
    615137029,3603020806,3314634738,939183345,1776939221,2609017814,2295496738,2058945313,2926798794,1545135305,1330124605,3173225534,
    4084100981,17165430,307568514,3762199681,888469610,3332340585,3587147933,665062302,2042050490,2346497209,2559330125,1793573966,
    3190661285,1279665062,1595330642,2910671697}';
BEGIN
  FOR i IN 0 .. length(bytes) - 1 LOOP
    crc := (crc >> 8) # step[((crc # get_byte(bytes, i)) & 255) + 1];
  END LOOP;
  RETURN crc;
END $fn$;

-- Publishes one message as postgres.PublishTx does, and returns its id. It is of the owner's
-- rights: who may only execute it can publish and do nothing else.
-- headers: an object of texts, or an array of pairs [name, value] where a name repeats.
-- wake: NOTIFY at the commit, for which all notifying commits of the database wait in turn.
CREATE FUNCTION redrive.publish(queue text, kind text, body bytea, id text DEFAULT NULL, key text DEFAULT NULL, headers json DEFAULT NULL,
  delay interval DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, reply_to text DEFAULT NULL,
  wake boolean DEFAULT true) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
#variable_conflict use_column
DECLARE
  unprintable CONSTANT text := '[\u0001-\u001f\u007f\ufffd]';
  in_queue  CONSTANT text := coalesce(publish.queue, '');
  its_kind  CONSTANT text := coalesce(publish.kind, '');
  its_key   CONSTANT text := coalesce(publish.key, '');
  its_body  CONSTANT bytea := coalesce(publish.body, '');
  answers   CONSTANT text := coalesce(publish.reply_to, '');
  its_id    text := nullif(publish.id, '');
  chosen    CONSTANT boolean := its_id IS NOT NULL;
  names     text[] := '{}';
  vals      text[] := '{}';
  pairs     text;
  head      bytea;
  size      integer;
  crc       bigint;
  body_hash bigint;
  now       timestamptz;
  due       timestamptz;
  ordered   boolean;
  keep      interval;
  taken     boolean := false;
  same      boolean;
  turn      bigint := 0;
  members   bigint := 1;
  bad       text;
BEGIN
  IF json_typeof(publish.headers) = 'object' THEN
    SELECT array_agg(h.key ORDER BY h.ord), array_agg(h.value #>> '{}' ORDER BY h.ord), max(h.key) FILTER (WHERE json_typeof(h.value) <> 'string')
    INTO names, vals, bad FROM json_each(publish.headers) WITH ORDINALITY AS h (key, value, ord);
  ELSIF json_typeof(publish.headers) = 'array' THEN
    IF EXISTS (SELECT FROM json_array_elements(publish.headers) h WHERE CASE WHEN json_typeof(h.value) = 'array' THEN json_array_length(h.value) <> 2
        OR json_typeof(h.value -> 0) <> 'string' OR json_typeof(h.value -> 1) <> 'string' ELSE true END) THEN
      bad := 'pairs of texts';
    ELSE
      SELECT array_agg(h.value ->> 0 ORDER BY h.ord), array_agg(h.value ->> 1 ORDER BY h.ord)
      INTO names, vals FROM json_array_elements(publish.headers) WITH ORDINALITY AS h (value, ord);
    END IF;
  ELSIF json_typeof(publish.headers) <> 'null' THEN
    bad := json_typeof(publish.headers);
  END IF;
  names := coalesce(names, '{}');
  vals := coalesce(vals, '{}');
  IF bad IS NOT NULL THEN
    RAISE 'invalid message: headers (%)', bad USING ERRCODE = '22023', HINT = 'headers are a JSON object of texts, or an array of pairs [name, value] of texts';
  END IF;

  SELECT coalesce(sum(octet_length(n) + octet_length(v)), 0) INTO size FROM unnest(names, vals) AS h (n, v);
  CASE
    WHEN in_queue !~ '^[a-z0-9._-]{1,64}$' OR in_queue IN ('.', '..') THEN
      RAISE 'invalid queue name %', quote_literal(left(in_queue, 80)) USING ERRCODE = '22023', HINT = 'use 1-64 of a-z 0-9 . _ -, and neither . nor ..';
    WHEN chosen AND its_id !~ '^[A-Za-z0-9_:-]{1,128}$' THEN
      RAISE 'invalid id %', quote_literal(left(its_id, 150)) USING ERRCODE = '22023', HINT = 'use 1-128 characters of A-Z a-z 0-9 _ : -';
    WHEN octet_length(its_kind) > 128 OR its_kind ~ unprintable THEN
      RAISE 'invalid message: kind of % bytes', octet_length(its_kind) USING ERRCODE = '22023', HINT = 'a kind is at most 128 bytes of printable UTF-8';
    WHEN octet_length(its_key) > 256 OR its_key ~ unprintable THEN
      RAISE 'invalid message: key of % bytes', octet_length(its_key) USING ERRCODE = '22023', HINT = 'a key is at most 256 bytes of printable UTF-8';
    WHEN octet_length(answers) > 256 OR answers ~ unprintable THEN
      RAISE 'invalid message: reply-to' USING ERRCODE = '22023', HINT = 'name a queue, or session:NAME';
    WHEN octet_length(its_body) > 16777216 THEN
      RAISE 'invalid message: body of % bytes', octet_length(its_body) USING ERRCODE = '22023', HINT = 'a body is at most 16777216 bytes; keep large data elsewhere and send a reference';
    WHEN cardinality(names) > 256 OR size > 65536 THEN
      RAISE 'invalid message: % headers of % bytes', cardinality(names), size USING ERRCODE = '22023', HINT = 'at most 256 headers of at most 65536 bytes together';
    WHEN EXISTS (SELECT FROM unnest(names) n WHERE n = '' OR octet_length(n) > 128 OR n ~ unprintable) THEN
      RAISE 'invalid message: header name' USING ERRCODE = '22023', HINT = 'a header name is 1-128 bytes of printable UTF-8';
    WHEN publish.delay < interval '0' THEN
      RAISE 'invalid message: delay of %', publish.delay USING ERRCODE = '22023', HINT = 'a delay is zero or more';
    WHEN publish.deliver_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
      OR publish.expires_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00' THEN
      RAISE 'invalid message: moment beyond the year 9999' USING ERRCODE = '22023', HINT = 'a moment lies within the years 1 to 9999, in UTC';
    ELSE
  END CASE;

  -- The time first, as in RFC 9562, so that new ids stand beside one another in the index.
  now := clock_timestamp();
  IF NOT chosen THEN
    its_id := lpad(to_hex(floor(extract(epoch FROM now) * 1000)::bigint), 12, '0');
    its_id := left(its_id, 8) || '-' || right(its_id, 4) || '-7' || substr(gen_random_uuid()::text, 16);
  END IF;
  SELECT '[' || string_agg('["' || translate(encode(convert_to(n, 'UTF8'), 'base64'), E'\n', '') || '","' ||
      translate(encode(convert_to(v, 'UTF8'), 'base64'), E'\n', '') || '"]', ',' ORDER BY ord) || ']',
    string_agg(int4send(octet_length(n)) || convert_to(n, 'UTF8') || int4send(octet_length(v)) || convert_to(v, 'UTF8'), '' ORDER BY ord)
  INTO pairs, head FROM unnest(names, vals) WITH ORDINALITY AS h (n, v, ord);
  head := int4send(octet_length(its_kind)) || convert_to(its_kind, 'UTF8') || int4send(octet_length(its_key)) || convert_to(its_key, 'UTF8')
    || coalesce(head, '') || int4send(octet_length(its_body));
  crc := redrive.crc32c(redrive.crc32c(4294967295, head), its_body) # 4294967295;
  size := size + octet_length(its_body) + octet_length(its_key) + octet_length(its_kind) + octet_length(its_id);
  due := greatest(now + least(coalesce(publish.delay, '0'), interval '250 years'), publish.deliver_at);

  SELECT q.order_by_key AND its_key <> '', q.remember INTO ordered, keep FROM redrive.queue q WHERE q.name = in_queue;
  IF chosen THEN
    body_hash := ('x' || encode(substr(sha256(int8send(octet_length(its_kind)) || convert_to(its_kind, 'UTF8') ||
      int8send(octet_length(its_key)) || convert_to(its_key, 'UTF8') || its_body), 1, 8), 'hex'))::bit(64)::bigint;
    -- An id of a store's making is not remembered: the message itself is looked for.
    taken := its_id ~ '^.{8}-.{5}7.{8}-.{12}$' AND (EXISTS (SELECT FROM redrive.message m WHERE m.queue = in_queue AND m.id = its_id)
      OR EXISTS (SELECT FROM redrive.dead d WHERE d.queue = in_queue AND d.id = its_id));
    IF NOT taken THEN
      INSERT INTO redrive.remembered AS r (queue, id, hash, outcome, reason, at, keep)
      VALUES (in_queue, its_id, body_hash, 0, 0, now, coalesce(keep, interval '24 hours'))
      ON CONFLICT (queue, id) DO UPDATE SET hash = excluded.hash, outcome = 0, reason = 0, at = excluded.at, keep = excluded.keep, until = NULL
        WHERE r.until <= excluded.at;
      taken := NOT FOUND;
    END IF;
    IF taken THEN
      SELECT r.hash = body_hash INTO same FROM redrive.remembered r
      WHERE r.queue = in_queue AND r.id = its_id AND (r.until IS NULL OR r.until > now);
      IF same IS NULL THEN
        SELECT (x.kind, x.key, x.body) = (its_kind, its_key, its_body) INTO same FROM (
          SELECT m.kind, m.key, m.body FROM redrive.message m WHERE m.queue = in_queue AND m.id = its_id
          UNION ALL SELECT d.kind, d.key, d.body FROM redrive.dead d WHERE d.queue = in_queue AND d.id = its_id) x LIMIT 1;
      END IF;
      IF NOT same THEN
        RAISE 'conflict: %/% was accepted with another body, kind or key', in_queue, its_id USING ERRCODE = '23505', HINT = 'publish it under another id';
      END IF;
      RETURN its_id;
    END IF;
  END IF;

  IF ordered THEN
    INSERT INTO redrive.ordered_key AS k (queue, key, last_turn, members) VALUES (in_queue, its_key, 1, 1)
    ON CONFLICT (queue, key) DO UPDATE SET last_turn = k.last_turn + 1, members = k.members + 1
    RETURNING k.last_turn, k.members INTO turn, members;
  END IF;
  INSERT INTO redrive.message (queue, id, kind, key, headers, body, due, published, expires, reply_to, size, crc, chosen, delayed, turn, class)
  VALUES (in_queue, its_id, its_kind, its_key, pairs::json, its_body, due, now, publish.expires_at, answers, size,
    CASE WHEN crc > 2147483647 THEN crc - 4294967296 ELSE crc END, chosen, due > now, turn, CASE WHEN members = 1 THEN 0 ELSE 4 END);
  INSERT INTO redrive.delta (queue, published, fresh, bytes) VALUES (in_queue, 1, 1, size);
  IF wake THEN
    PERFORM pg_notify('redrive_' || n.nspname, 'sql ' || in_queue) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE t.oid = pg_typeof(NULL::redrive.message);
  END IF;
  RETURN its_id;
END $fn$;

-- The same for a body of text, so that a literal is taken as it stands.
CREATE FUNCTION redrive.publish(queue text, kind text, body text, id text DEFAULT NULL, key text DEFAULT NULL, headers json DEFAULT NULL,
  delay interval DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, reply_to text DEFAULT NULL,
  wake boolean DEFAULT true) RETURNS text LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT redrive.publish(queue, kind, convert_to(body, 'UTF8'), id, key, headers, delay, deliver_at, expires_at, reply_to, wake)
$fn$;

REVOKE ALL ON FUNCTION redrive.publish(text, text, bytea, text, text, json, interval, timestamptz, timestamptz, text, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION redrive.publish(text, text, text, text, text, json, interval, timestamptz, timestamptz, text, boolean) FROM PUBLIC;
INSERT INTO redrive.migration (version) VALUES (2);
