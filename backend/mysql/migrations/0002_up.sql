-- Publishing by SQL, version 2: a procedure that publishes in its caller's own transaction.
-- DELIMITER is of the servers' clients; whoever sends statements itself sends each that stands
-- between two of its signs.

DROP PROCEDURE IF EXISTS redrive_crc32c;
DROP PROCEDURE IF EXISTS redrive_publish;

DELIMITER //

-- The checksum of driver.Checksum goes on over more bytes, from 0 at first. MariaDB has it since
-- 10.8; elsewhere each byte is a turn of a loop.
CREATE PROCEDURE redrive_crc32c(IN bytes LONGBLOB, INOUT crc BIGINT UNSIGNED)
COMMENT 'of redrive_publish' DETERMINISTIC NO SQL SQL SECURITY INVOKER
done: BEGIN
  /*M!100801 SET crc = CRC32C(crc, bytes); LEAVE done; */
  BEGIN
    DECLARE step BLOB DEFAULT UNHEX(CONCAT(
      '00000000F26B8303E13B70F71350F3F4C79A971F35F1141C26A1E7E8D4CA64EB8AD958CF78B2DBCC6BE228389989AB3B4D43CFD0BF284CD3AC78BF275E133C24',
      '105EC76FE235446CF165B798030E349BD7C4507025AFD37336FF2087C494A3849A879FA068EC1CA37BBCEF5789D76C545D1D08BFAF768BBCBC2678484E4DFB4B',
      '20BD8EDED2D60DDDC186FE2933ED7D2AE72719C1154C9AC2061C6936F477EA35AA64D611580F55124B5FA6E6B93425E56DFE410E9F95C20D8CC531F97EAEB2FA',
      '30E349B1C288CAB2D1D8394623B3BA45F779DEAE05125DAD1642AE59E4292D5ABA3A117E4851927D5B016189A96AE28A7DA086618FCB05629C9BF6966EF07595',
      '417B1DBCB3109EBFA0406D4B522BEE4886E18AA3748A09A067DAFA5495B17957CBA2457339C9C6702A993584D8F2B6870C38D26CFE53516FED03A29B1F682198',
      '5125DAD3A34E59D0B01EAA244275292796BF4DCC64D4CECF77843D3B85EFBE38DBFC821C2997011F3AC7F2EBC8AC71E81C661503EE0D9600FD5D65F40F36E6F7',
      '61C6936293AD106180FDE39572966096A65C047D5437877E4767748AB50CF789EB1FCBAD197448AE0A24BB5AF84F38592C855CB2DEEEDFB1CDBE2C453FD5AF46',
      '7198540D83F3D70E90A324FA62C8A7F9B602C312446940115739B3E5A55230E6FB410CC2092A8FC11A7A7C35E811FF363CDB9BDDCEB018DEDDE0EB2A2F8B6829',
      '82F63B78709DB87B63CD4B8F91A6C88C456CAC67B7072F64A457DC90563C5F93082F63B7FA44E0B4E91413401B7F9043CFB5F4A83DDE77AB2E8E845FDCE5075C',
      '92A8FC1760C37F1473938CE081F80FE355326B08A759E80BB4091BFF466298FC1871A4D8EA1A27DBF94AD42F0B21572CDFEB33C72D80B0C43ED04330CCBBC033',
      'A24BB5A6502036A54370C551B11B465265D122B997BAA1BA84EA524E7681D14D2892ED69DAF96E6AC9A99D9E3BC21E9DEF087A761D63F9750E330A81FC588982',
      'B21572C9407EF1CA532E023EA145813D758FE5D687E466D594B4952166DF162238CC2A06CAA7A905D9F75AF12B9CD9F2FF56BD190D3D3E1A1E6DCDEEEC064EED',
      'C38D26C431E6A5C722B65633D0DDD5300417B1DBF67C32D8E52CC12C1747422F49547E0BBB3FFD08A86F0EFC5A048DFF8ECEE9147CA56A176FF599E39D9E1AE0',
      'D3D3E1AB21B862A832E8915CC083125F144976B4E622F5B7F572064307198540590AB964AB613A67B831C9934A5A4A909E902E7B6CFBAD787FAB5E8C8DC0DD8F',
      'E330A81A115B2B19020BD8EDF0605BEE24AA3F05D6C1BC06C5914FF237FACCF169E9F0D59B8273D688D280227AB90321AE7367CA5C18E4C94F48173DBD23943E',
      'F36E6F750105EC7612551F82E03E9C8134F4F86AC69F7B69D5CF889D27A40B9E79B737BA8BDCB4B9988C474D6AE7C44EBE2DA0A54C4623A65F16D052AD7D5351'));
    DECLARE part VARBINARY(1024);
    DECLARE here, i INT DEFAULT 1;
    SET crc = crc ^ 4294967295;
    WHILE here <= LENGTH(bytes) DO
      SET part = SUBSTR(bytes, here, 1024), i = 1;
      WHILE i <= LENGTH(part) DO
        SET crc = (crc >> 8) ^ CONV(HEX(SUBSTR(step, 4 * ((crc ^ ORD(SUBSTR(part, i, 1))) & 255) + 1, 4)), 16, 10), i = i + 1;
      END WHILE;
      SET here = here + 1024;
    END WHILE;
    SET crc = crc ^ 4294967295;
  END;
END //

-- Publishes one message as mysql.PublishTx does, and sets the id. It is of the definer's rights:
-- who may only execute it can publish and do nothing else. Names come as bytes, so that neither
-- a connection's character set nor a collation nor sql_mode changes or cuts them.
-- options: a JSON object with id, key, reply_to (texts), delay (seconds), deliver_at, expires_at
-- (moments in UTC) and headers (an object of texts, or an array of pairs [name, value]).
CREATE PROCEDURE redrive_publish(IN in_queue LONGBLOB, IN in_kind LONGBLOB, IN in_body LONGBLOB, IN options LONGTEXT CHARACTER SET utf8mb4,
  OUT out_id VARCHAR(128) CHARACTER SET utf8mb4)
COMMENT 'publishes a message in the caller''s transaction' MODIFIES SQL DATA SQL SECURITY DEFINER
publish: BEGIN
  DECLARE its_kind, its_body LONGBLOB;
  DECLARE its_id, its_key, answers LONGBLOB DEFAULT '';
  DECLARE fields, item, headers, all_names, all_values LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE field, moment LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE bad TEXT CHARACTER SET utf8mb4;
  DECLARE i, total, size INT DEFAULT 0;
  DECLARE delay, at, deliver, keep, body_hash, its_hash, mine, owner BIGINT;
  DECLARE expires BIGINT DEFAULT NULL;
  DECLARE turn BIGINT DEFAULT 0;
  DECLARE members BIGINT DEFAULT 1;
  DECLARE crc BIGINT UNSIGNED DEFAULT 0;
  DECLARE head, pairs, name, val LONGBLOB;
  DECLARE chosen, ordered TINYINT DEFAULT 0;
  DECLARE same, is_text TINYINT;
  -- Texts in hexadecimal, so that a look at them is one at bytes: control characters, U+FFFD.
  DECLARE unprintable VARCHAR(40) CHARACTER SET utf8mb4 DEFAULT '^(..)*([01].|7F|EFBFBD)';

  SET its_kind = COALESCE(in_kind, ''), its_body = COALESCE(in_body, ''), in_queue = COALESCE(in_queue, ''), delay = 0, deliver = 0;
  IF options IS NOT NULL AND NOT JSON_VALID(options) THEN
    SET bad = 'invalid options: this is no JSON';
  ELSEIF JSON_TYPE(options) NOT IN ('OBJECT', 'NULL') THEN
    SET bad = 'invalid options: they are a JSON object';
  ELSEIF JSON_TYPE(options) = 'OBJECT' THEN
    SET fields = JSON_KEYS(options), total = COALESCE(JSON_LENGTH(fields), 0);
    IF total <> JSON_LENGTH(options) THEN
      SET bad = 'invalid options: a name is there twice';
    END IF;
  END IF;
  WHILE bad IS NULL AND i < total DO
    SET field = JSON_UNQUOTE(JSON_EXTRACT(fields, CONCAT('$[', i, ']'))), i = i + 1;
    IF field NOT IN ('id', 'key', 'headers', 'delay', 'deliver_at', 'expires_at', 'reply_to') THEN
      SET bad = CONCAT('invalid option ', QUOTE(LEFT(field, 20)), ': id, key, headers, delay, deliver_at, expires_at, reply_to');
    ELSE
      SET item = JSON_EXTRACT(options, CONCAT('$.', field));
      CASE
        WHEN JSON_TYPE(item) = 'NULL' THEN BEGIN END;
        WHEN field = 'headers' THEN SET headers = item;
        WHEN field = 'delay' AND JSON_TYPE(item) IN ('INTEGER', 'UNSIGNED INTEGER', 'DOUBLE', 'DECIMAL') THEN
          SET delay = IF(item + 0e0 < 7884000000, CEILING(CAST(GREATEST(item + 0e0, -1) AS DECIMAL(20, 9)) * 1000000), 7884000000000000);
        WHEN field = 'delay' THEN SET bad = 'invalid delay: a number of seconds';
        WHEN JSON_TYPE(item) <> 'STRING' THEN SET bad = CONCAT('invalid option ', field, ': it is a text');
        WHEN field IN ('deliver_at', 'expires_at') THEN
          SET moment = JSON_UNQUOTE(item), at = NULL;
          IF moment REGEXP '^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z?$' AND moment >= '0001' THEN
            BEGIN
              DECLARE EXIT HANDLER FOR SQLEXCEPTION SET at = NULL; -- strict mode, for a day that no month has
              SET at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST(REPLACE(REPLACE(moment, 'T', ' '), 'Z', '') AS DATETIME(6)));
            END;
          END IF;
          IF at IS NULL THEN
            SET bad = CONCAT('invalid ', field, ' ', QUOTE(LEFT(moment, 30)), ': write it as 2026-12-31 23:59:59.999999, in UTC');
          ELSEIF field = 'deliver_at' THEN
            SET deliver = at;
          ELSE
            SET expires = at;
          END IF;
        WHEN field = 'id' THEN SET its_id = JSON_UNQUOTE(item);
        WHEN field = 'key' THEN SET its_key = JSON_UNQUOTE(item);
        ELSE SET answers = JSON_UNQUOTE(item);
      END CASE;
    END IF;
  END WHILE;

  IF JSON_TYPE(headers) = 'OBJECT' THEN
    SET all_names = JSON_KEYS(headers), all_values = JSON_EXTRACT(headers, '$.*');
  ELSEIF JSON_TYPE(headers) = 'ARRAY' THEN
    SET all_names = JSON_EXTRACT(headers, '$[*][0]'), all_values = JSON_EXTRACT(headers, '$[*][1]');
  END IF;
  SET total = COALESCE(JSON_LENGTH(headers), 0), chosen = its_id <> '';
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION SET is_text = FALSE; -- strict mode
    SET is_text = COALESCE(CONVERT(CONVERT(its_kind USING utf8mb4) USING binary) = its_kind, FALSE);
  END;
  SET bad = COALESCE(bad, CASE
    WHEN HEX(in_queue) NOT REGEXP '^(2[DE]|3[0-9]|5F|6[1-9A-F]|7[0-9A])+$' OR LENGTH(in_queue) > 64 OR in_queue IN ('.', '..')
      THEN 'invalid queue name: use 1-64 of a-z 0-9 . _ -, and neither . nor ..'
    WHEN chosen AND (LENGTH(its_id) > 128 OR HEX(its_id) NOT REGEXP '^(2D|3[0-9A]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9A])+$')
      THEN 'invalid id: use 1-128 characters of A-Z a-z 0-9 _ : -'
    WHEN LENGTH(its_kind) > 128 OR HEX(its_kind) REGEXP unprintable OR NOT is_text
      THEN CONCAT('invalid kind of ', LENGTH(its_kind), ' bytes: at most 128 bytes of printable UTF-8')
    WHEN LENGTH(its_key) > 256 OR HEX(its_key) REGEXP unprintable
      THEN CONCAT('invalid key of ', LENGTH(its_key), ' bytes: at most 256 bytes of printable UTF-8')
    WHEN LENGTH(answers) > 256 OR HEX(answers) REGEXP unprintable THEN 'invalid reply_to: name a queue, or session:NAME'
    WHEN LENGTH(its_body) > 16777216
      THEN CONCAT('invalid body of ', LENGTH(its_body), ' bytes: at most 16777216; keep large data elsewhere, send a reference')
    WHEN delay < 0 THEN 'invalid delay: zero or more seconds'
    WHEN total > 256 THEN CONCAT(total, ' headers: at most 256')
    WHEN headers IS NOT NULL AND (all_names IS NULL OR all_values IS NULL) AND headers NOT IN ('[]', '{}') OR JSON_LENGTH(all_names) <> total OR JSON_LENGTH(all_values) <> total
      OR JSON_TYPE(headers) = 'ARRAY' AND JSON_EXTRACT(headers, '$[*][2]') IS NOT NULL
      THEN 'invalid headers: a JSON object of texts, or an array of pairs [name, value] of texts'
  END);

  -- Headers are stored as codec.go writes them; sizes in the checksum are of 4 bytes.
  SET i = 0, pairs = '', head = CONCAT(UNHEX(LPAD(HEX(LENGTH(its_kind)), 8, '0')), its_kind, UNHEX(LPAD(HEX(LENGTH(its_key)), 8, '0')), its_key);
  WHILE bad IS NULL AND i < total DO
    SET field = JSON_EXTRACT(all_names, CONCAT('$[', i, ']')), item = JSON_EXTRACT(all_values, CONCAT('$[', i, ']')), i = i + 1;
    SET name = JSON_UNQUOTE(field), val = JSON_UNQUOTE(item), size = size + LENGTH(name) + LENGTH(val);
    IF JSON_TYPE(field) <> 'STRING' OR JSON_TYPE(item) <> 'STRING' THEN
      SET bad = 'invalid headers: a JSON object of texts, or an array of pairs [name, value] of texts';
    ELSEIF LENGTH(name) NOT BETWEEN 1 AND 128 OR HEX(name) REGEXP unprintable THEN
      SET bad = 'invalid header name: 1-128 bytes of printable UTF-8';
    ELSEIF size > 65536 THEN
      SET bad = 'headers of more than 65536 bytes';
    END IF;
    SET pairs = CONCAT(pairs, ';', REPLACE(TO_BASE64(name), CHAR(10), ''), ':', REPLACE(TO_BASE64(val), CHAR(10), '')),
      head = CONCAT(head, UNHEX(LPAD(HEX(LENGTH(name)), 8, '0')), name, UNHEX(LPAD(HEX(LENGTH(val)), 8, '0')), val);
  END WHILE;
  IF bad IS NOT NULL THEN
    SET bad = LEFT(CONCAT('redrive: ', bad), 128);
    SIGNAL SQLSTATE '22023' SET MESSAGE_TEXT = bad;
  END IF;

  -- Statements of a procedure commit one by one where no transaction is open.
  SAVEPOINT redrive_publish;
  BEGIN
    DECLARE EXIT HANDLER FOR 1305
      SIGNAL SQLSTATE '25000' SET MESSAGE_TEXT = 'redrive: no transaction is open: START TRANSACTION first, and COMMIT afterwards';
    ROLLBACK TO SAVEPOINT redrive_publish;
  END;

  SET head = CONCAT(head, UNHEX(LPAD(HEX(LENGTH(its_body)), 8, '0')));
  CALL redrive_crc32c(head, crc);
  CALL redrive_crc32c(its_body, crc);
  SET at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF NOT chosen THEN
    -- The time first, as in RFC 9562, so that new ids stand beside one another in the index.
    SET name = LOWER(LPAD(HEX(at DIV 1000), 12, '0')), val = SHA2(CONCAT(UUID(), RAND()), 256);
    SET its_id = CONCAT(LEFT(name, 8), '-', RIGHT(name, 4), '-7', LEFT(val, 3), '-', SUBSTR('89ab', 1 + ORD(RIGHT(val, 1)) % 4, 1), SUBSTR(val, 4, 3), '-', SUBSTR(val, 7, 12));
  END IF;
  SET size = size + LENGTH(its_body) + LENGTH(its_key) + LENGTH(its_kind) + LENGTH(its_id), pairs = IF(total = 0, NULL, CONCAT(pairs, ';'));
  SELECT q.order_by_key AND its_key <> '', q.remember INTO ordered, keep FROM redrive_queue q WHERE q.name = in_queue;

  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
      BEGIN
        DECLARE CONTINUE HANDLER FOR 1305 BEGIN END; -- a deadlock has rolled back everything
        ROLLBACK TO SAVEPOINT redrive_publish;
      END;
      RESIGNAL;
    END;
    IF chosen THEN
      -- An id of a store's making is not remembered: the message itself is looked for.
      IF LENGTH(its_id) = 36 AND its_id LIKE '________-_____7________-____________' THEN
        SELECT m.kind = its_kind AND m.msg_key = its_key AND m.body = its_body INTO same
        FROM redrive_message m FORCE INDEX (message_id) WHERE m.queue = in_queue AND m.id = its_id LOCK IN SHARE MODE;
        IF same IS NULL THEN
          SELECT d.kind = its_kind AND d.msg_key = its_key AND d.body = its_body INTO same
          FROM redrive_dead d FORCE INDEX (PRIMARY) WHERE d.queue = in_queue AND d.id = its_id LOCK IN SHARE MODE;
        END IF;
      END IF;
      IF same IS NULL THEN
        SET mine = UUID_SHORT() & 9223372036854775807;
        SET body_hash = CONV(LEFT(SHA2(CONCAT(UNHEX(LPAD(HEX(LENGTH(its_kind)), 16, '0')), its_kind, UNHEX(LPAD(HEX(LENGTH(its_key)), 16, '0')), its_key, its_body), 256), 16), 16, -10);
        INSERT INTO redrive_remembered (queue, id, hash, nonce, keep, changed, until, outcome, reason)
        VALUES (in_queue, its_id, body_hash, mine, COALESCE(keep, 86400000000), at, NULL, 0, 0)
        ON DUPLICATE KEY UPDATE
          hash = IF(until <= VALUES(changed), VALUES(hash), hash), nonce = IF(until <= VALUES(changed), VALUES(nonce), nonce),
          redrive_remembered.keep = IF(until <= VALUES(changed), VALUES(keep), redrive_remembered.keep),
          outcome = IF(until <= VALUES(changed), 0, outcome), reason = IF(until <= VALUES(changed), 0, reason),
          changed = IF(until <= VALUES(changed), VALUES(changed), changed), until = IF(until <= VALUES(changed), NULL, until);
        SELECT r.hash, r.nonce INTO its_hash, owner FROM redrive_remembered r FORCE INDEX (PRIMARY) WHERE r.queue = in_queue AND r.id = its_id FOR UPDATE;
        IF owner <> mine THEN
          SET same = its_hash = body_hash;
        END IF;
      END IF;
      IF NOT same THEN
        SET bad = LEFT(CONCAT('redrive: ', in_queue, '/', LEFT(its_id, 40), ' was accepted with another body, kind or key: publish it under another id'), 128);
        SIGNAL SQLSTATE '23505' SET MESSAGE_TEXT = bad;
      END IF;
    END IF;

    IF same IS NULL THEN
      IF ordered THEN
        INSERT INTO redrive_ordered_key (queue, msg_key, last_turn, members) VALUES (in_queue, its_key, 1, 1)
        ON DUPLICATE KEY UPDATE last_turn = last_turn + 1, redrive_ordered_key.members = redrive_ordered_key.members + 1;
        SELECT k.last_turn, k.members INTO turn, members FROM redrive_ordered_key k FORCE INDEX (PRIMARY) WHERE k.queue = in_queue AND k.msg_key = its_key FOR UPDATE;
      END IF;
      INSERT INTO redrive_message (queue, id, kind, msg_key, headers, body, due, published, expires, reply_to, size, crc, is_delayed, chosen, turn, class)
      VALUES (in_queue, its_id, its_kind, its_key, pairs, its_body, GREATEST(at + delay, deliver), at, expires, answers, size, crc,
        delay > 0 OR deliver > at, chosen, turn, IF(members = 1, 0, 4));
      INSERT INTO redrive_delta (queue, published, fresh, bytes) VALUES (in_queue, 1, 1, size);
    END IF;
  END;
  RELEASE SAVEPOINT redrive_publish;
  SET out_id = its_id;
END //

DELIMITER ;

INSERT IGNORE INTO redrive_migration (version, at) VALUES (2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
